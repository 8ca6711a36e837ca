// The Requests mode: one stream of what has changed, open while its mode is visible and not paused.
// The bars are drawn from the spans that came with the rows; their clock goes on between messages.
const watchRequests = (() => {
  const SILENT_S = 30; // The server says something every ten seconds: after this, the stream is dead.
  const AGAIN_MS = 3000;
  const MAX_LANES = 40;
  const FINEST = 0.2; // percent of the width
  const DOING = { prefill: "read", decode: "decoding", compile: "compiled for", trace: "traced for" };
  const part = (selector) => document.querySelector(`#requests ${selector}`);
  const here = (what) =>
    `${location.pathname.replace(/\/?$/, "/")}requests/${what}?session=${encodeURIComponent(session)}`;
  const lanes = new Map(); // Of each request: its spans (phase, start, seconds), and its bar.
  let session = "", source = null, isInSight = false, pausedAt = null;
  let offset = 0, heard = 0, shown = []; // The server's clock minus this one's; the bars, from top to bottom.
  const now = () => pausedAt ?? performance.now() / 1000 + offset;
  const end = ([, start, seconds]) => (seconds === null ? Infinity : start + seconds);

  function turn() {
    const isWanted = session && isInSight && !document.hidden && pausedAt === null;
    if (isWanted === (source !== null)) return;
    source?.close();
    source = isWanted ? new EventSource(here("events")) : null;
    if (!source) return;
    heard = performance.now();
    source.onmessage = (event) => take(JSON.parse(event.data));
    source.onerror = ({ target }) => {
      if (target.readyState !== EventSource.CLOSED || target !== source) return; // It tries again by itself.
      source = null;
      setTimeout(turn, AGAIN_MS);
    };
  }

  function take({ now: clock, all, rows, texts, gone }) {
    heard = performance.now();
    offset = clock - heard / 1000;
    const table = part("tbody");
    if (all) {
      lanes.clear();
      table.replaceChildren();
    }
    for (const number of gone) {
      lanes.delete(number);
      document.getElementById(`request_${number}`)?.remove();
    }
    for (const [number, html, spans] of rows) {
      const made = document.createElement("tbody");
      made.innerHTML = html;
      const row = made.firstElementChild, old = document.getElementById(`request_${number}`);
      const hadFocus = old?.contains(document.activeElement);
      if (old) old.replaceWith(row);
      else table.insertBefore(row, [...table.rows].find((each) => each.dataset.number < number) ?? null);
      if (hadFocus) row.querySelector("button")?.focus();
      lanes.set(number, { spans, bar: lanes.get(number)?.bar ?? made_bar(number) });
    }
    for (const [number, count, text] of texts) {
      const row = document.getElementById(`request_${number}`);
      row.querySelector(".new-tokens").textContent = count;
      if (text) row.querySelector(".new-text").textContent = text;
    }
    draw();
  }

  function made_bar(number) {
    const bar = document.createElement("div");
    bar.className = "lane";
    bar.innerHTML = `<span>${number}</span><span class="lane-track" tabindex="0" role="img"></span><b></b>`;
    bar.dataset.number = number;
    return bar;
  }

  const width = () => Number(part(".window").value);
  function draw() {
    const to = now(), from = to - width();
    const visible = [...lanes].filter(([, { spans }]) => end(spans.at(-1)) > from && spans[0][1] < to);
    visible.sort(([one], [other]) => other - one);
    const bars = visible.slice(0, MAX_LANES).map(([number, { spans, bar }]) => {
      // Phase, start and end in percent; what is too short to see is drawn with the one before, as the longer one.
      const parts = [];
      for (const span of spans) {
        const start = Math.max(0, (100 * (span[1] - from)) / (to - from));
        const stop = Math.min(100, (100 * (end(span) - from)) / (to - from));
        const last = parts.at(-1);
        if (stop < 0) continue;
        if (!last || stop - start > FINEST) parts.push([span[0], start, stop]);
        else if (stop - start > last[2] - last[1]) last.splice(0, 3, span[0], last[1], stop);
        else last[2] = stop;
      }
      for (const part of parts) part[2] = Math.max(part[2], part[1] + FINEST);
      const stops = parts.map(([phase, start, stop]) => `#0000 0 ${start}%, var(--phase-${phase}) 0 ${stop}%`);
      const [, track, word] = bar.children;
      track.style.backgroundImage = `linear-gradient(to right, ${stops.join()}, #0000 0)`;
      const state = document.querySelector(`#request_${number} .state`)?.textContent ?? "";
      track.ariaLabel = `Request ${number}: ${state}`;
      word.textContent = state;
      return bar;
    });
    if (bars.length !== shown.length || bars.some((bar, i) => bar !== shown[i])) {
      shown = bars;
      part(".lanes").replaceChildren(...bars);
    }
  }

  // What all others did at a moment of one request, 0 to 1 from left to right.
  function tell(bar, share) {
    const to = now(), time = to - (1 - share) * width();
    const own = Number(bar.dataset.number), groups = new Map();
    for (const [number, { spans }] of lanes) {
      const span = spans.find((each) => each[1] <= time && time < end(each));
      if (span) groups.set(span[0], [...(groups.get(span[0]) ?? []), number]);
    }
    const others = Object.entries(DOING).flatMap(([phase, word]) => {
      const numbers = (groups.get(phase) ?? []).filter((number) => number !== own).sort((a, b) => a - b);
      return numbers.length ? [`${numbers.join(", ")} ${numbers.length > 1 ? "were" : "was"} ${word}`] : [];
    });
    const phase = [...groups].find(([, numbers]) => numbers.includes(own))?.[0];
    const did = !phase ? "was not there" : DOING[phase] ? `was ${DOING[phase]}` : phase === "queue" ? "waited" : phase;
    part(".doing").textContent =
      `${(to - time).toFixed(2)} s ago, request ${own} ${did}; ${others.join(", ") || "no other ran"}.`;
  }

  function listen(box) {
    let share = 1;
    box.addEventListener("pointermove", ({ target, clientX }) => {
      if (!target.matches(".lane-track")) return;
      const { left, width } = target.getBoundingClientRect();
      tell(target.parentElement, (share = (clientX - left) / width));
    });
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.01, ArrowRight: 0.01 }[event.key];
      if (!step || !event.target.matches(".lane-track")) return;
      event.preventDefault();
      tell(event.target.parentElement, (share = Math.min(1, Math.max(0, share + step))));
    });
    box.addEventListener("click", ({ target }) => {
      if (target.dataset.stop) fetch(`${here("stop")}&number=${target.dataset.stop}`, { method: "POST" });
      if (!target.matches(".pause")) return;
      pausedAt = pausedAt === null ? now() : null;
      target.textContent = pausedAt === null ? "Pause" : "Go on";
      target.ariaPressed = pausedAt !== null;
      turn();
    });
    box.addEventListener("change", draw);
    document.addEventListener("visibilitychange", turn);
    new IntersectionObserver(([{ isIntersecting }]) => {
      isInSight = isIntersecting;
      turn();
    }).observe(box);
    setInterval(() => {
      if (!source) return;
      draw();
      if (performance.now() - heard < 1000 * SILENT_S) return;
      source.close(); // The computer slept, or the network has changed.
      source = null;
      turn();
    }, 250);
  }

  return (name) => {
    if (!session) listen(document.getElementById("requests"));
    session = name;
    part(".trace").href = here("trace");
    turn();
  };
})();
