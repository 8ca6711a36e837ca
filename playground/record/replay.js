// Replays each recorded run: its phases, and its tokens as they came, on the run's own clock.
const written = (ms) => (ms >= 1000 ? (ms / 1000).toFixed(2) + " s" : Math.round(ms) + " ms");
for (const run of document.querySelectorAll(".recorded-run")) {
  const { spans, tokens } = JSON.parse(run.dataset.timeline);
  if (!spans.length) continue;
  const part = (name) => run.querySelector(name);
  const button = part(".replay");
  const text = part(".replayed .story-new");
  const box = part(".replayed .story");
  const opening = text.textContent;
  const total = spans.at(-1)[1];
  let frame = null;

  const end = () => {
    cancelAnimationFrame(frame);
    frame = null;
    part(".replayed").hidden = true;
    part(".finished").hidden = false;
    button.textContent = "Replay";
  };
  const start = () => {
    const began = performance.now();
    part(".finished").hidden = true;
    part(".replayed").hidden = false;
    button.textContent = "Skip to the end";
    let shown = -1;
    const draw = (now) => {
      const ms = now - began;
      if (ms >= total) return end();
      const at = spans.findIndex(([, ended]) => ms < ended);
      const known = at > 0 ? spans[at - 1][2] : 0;
      part(".replay-phase").textContent = spans[at][0];
      part(".replay-clock").textContent = written(ms);
      if (known !== shown) {
        shown = known;
        // The last token may hold only a part of a character.
        text.textContent = opening + tokens.slice(0, known).join("").replace(/\ufffd+$/, "");
        box.scrollTop = box.scrollHeight;
      }
      frame = requestAnimationFrame(draw);
    };
    frame = requestAnimationFrame(draw);
  };
  button.hidden = false;
  button.addEventListener("click", () => (frame === null ? start() : end()));
}
