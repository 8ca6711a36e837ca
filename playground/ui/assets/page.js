// Gradio asks every event about every component, and Svelte notes each reading: a quarter of a visit's
// script time. It leaves objects of a class of their own alone, and the list of events never changes.
{
  const events = window.gradio_config?.dependencies ?? [];
  for (const each of [events, ...events])
    Object.setPrototypeOf(each, Object.create(Object.getPrototypeOf(each)));
}
// The main button of each mode, the notice beside it, and its result.
const RESULTS = {
  generate: ["#notice", "#compared .story, #story :is(.story, .decisions)"],
  chat_send: ["#chat_notice", "#chat_text"],
  walkthrough_show: ["#notice", "#walkthrough"],
  batch_run: ["#batch_notice", "#batch_report"],
  transcribe: ["#speech_notice", "#heard .story"],
  functions_run: ["#functions_notice", "#functions_report .verdict"],
  compare: ["#compare_notice", "#ways"],
};

// If a script is missing or fails while it builds the page, parts of the page are missing or get no
// answers. Then the page is reloaded, but only once, so that a permanent fault does not loop.
const isBuilt = () => document.querySelector("#modes .tabitem .card") !== null;
// Every page requests the engine's status at its start.
const isAnswered = () => document.querySelector("#status .status") !== null;
const wasLoadedAnew = performance.getEntriesByType("navigation")[0]?.type === "reload";
let stands = false;
function loadAnew() {
  if (stands || wasLoadedAnew) return;
  setTimeout(() => isBuilt() || location.reload(), 3000);
  setTimeout(() => isAnswered() || location.reload(), 10000);
}
window.addEventListener("error", loadAnew);
window.addEventListener("unhandledrejection", loadAnew);

// Each mode has an address. Opening one adds it to the browser's history; Back and Forward open the
// mode of their address, and add nothing.
function modeOfAddress() {
  const address = new URLSearchParams(location.search);
  return MODES.get(address.get("tab")) ?? "playground";
}
let modeInSight = "";
// Returns the mode of the address, and marks its link.
function showPlace() {
  const mode = modeOfAddress();
  const place = PLACES[mode];
  Object.assign(document.documentElement.dataset, { place, mode });
  const here = `?tab=${mode}`;
  for (const link of document.querySelectorAll("#places a")) {
    if (link.dataset.place === place) link.setAttribute("href", here); // It leads back to where one was.
    if (link.getAttribute("href") === here) link.ariaCurrent = link.dataset.place ? "true" : "page";
    else link.ariaCurrent = null;
    // On a phone the modes of a place are in one scrolling line.
    if (link.ariaCurrent === "page") link.parentElement.scrollLeft = link.offsetLeft - 60;
  }
  return mode;
}
showPlace();
const opened = new Set();
// At every message of an event, Gradio sets its state at each component that was ever an event's
// input, and copies all their properties: 20 ms. Nothing here shows that state.
async function noteNoStates() {
  const scripts = performance.getEntriesByType("resource").map(({ name }) => name);
  const tracker = scripts.find((name) => /\/statustracker-[^/]*\.js$/.test(name));
  const parts = tracker ? Object.values(await import(tracker)) : [];
  const states = parts.find((part) => part.prototype?.resolve_args);
  if (states) states.prototype.resolve_args = () => [];
}
// Returns a Gradio update for each part of a mode; none is visible until the mode is first opened.
function cameInSight(mode, visible) {
  if (!opened.size) noteNoStates();
  modeInSight = mode;
  const updates = visible.map((how) => (opened.has(mode) ? {} : { visible: how }));
  opened.add(mode);
  if (marks.engine) showNews();
  else look(); // The page has come up with this mode: it need not wait for the next second.
  return updates.map((update) => ({ __type__: "update", ...update }));
}
// What the visible mode foresees follows the panel of settings.
function settingsChanged() {
  if (["chat", "speech"].includes(modeInSight)) document.getElementById(`${modeInSight}_is_new`)?.click();
}
// Sets the fields that a server's answer suggests, unless they were changed after it was asked.
function takeSuggested(suggestion, ...values) {
  const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  const update = (isSet, value) => ({ __type__: "update", ...(isSet && { value }) });
  return JSON.parse(suggestion).changes.map((change, i) =>
    update(change && isSame(values[i], change[0]), change?.[1]),
  );
}
const show = () => document.getElementById("address_is_new")?.click();
addEventListener("popstate", show);
function turnTo(mode) {
  if (mode === modeOfAddress()) return;
  const address = new URL(location.href);
  address.searchParams.set("tab", mode);
  history.pushState(null, "", address);
  show();
}
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="?tab="]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return; // into another window
  event.preventDefault();
  turnTo(new URLSearchParams(link.search).get("tab"));
});
// Runs the Playground's request; the Playground may have to be built first.
function generateInPlayground() {
  turnTo("playground");
  const press = () => {
    const button = document.getElementById("generate");
    if (button) button.click();
    else setTimeout(press, 50);
  };
  setTimeout(press, 0);
}

// Keyboard: Ctrl/Cmd+Enter presses the visible mode's main button, Esc its stop button. A disabled
// button ignores it, and both belong to an input method while it composes a word.
document.addEventListener("keydown", (event) => {
  if (event.isComposing || !event.isTrusted) return; // `isTrusted`: a person pressed it
  const press = (...ids) => {
    const buttons = ids.map((id) => document.getElementById(id));
    const button = buttons.find((each) => each && !each.disabled && each.offsetParent !== null);
    if (button) {
      event.preventDefault();
      button.click();
    }
  };
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) press(...Object.keys(RESULTS));
  const panel = document.getElementById("shortcuts");
  if (event.key === "Escape" && !panel?.open) press("stop", "chat_stop", "stop_speech", "stop_batch");
  const writes = event.target.closest?.("input, textarea, select, [contenteditable=true]");
  if (event.key === "?" && !writes && panel && !panel.open) {
    event.preventDefault();
    panel.showModal();
  }
});

document.addEventListener("click", (event) => {
  const meanings = event.target.closest('a[href="#meanings"]') && document.querySelector("#meanings details");
  if (meanings) {
    event.preventDefault();
    meanings.open = true;
    meanings.scrollIntoView();
  }
  const panel = document.getElementById("shortcuts");
  // On a phone the settings are a sheet over the page, closed at first; else they are beside it.
  if (event.target.closest("#settings_switch, #settings_close")) {
    const isShown = document.getElementById("settings").checkVisibility();
    document.documentElement.dataset.settings = isShown ? "closed" : "open";
    document.getElementById("settings_switch").ariaExpanded = !isShown;
  }
  // Outside the panel is its backdrop.
  if (event.target === panel) panel.close();
  if (event.target.closest("#shortcuts_open")) panel.showModal();
});

// A change event may come after the answer to the press that followed it; that answer's notice stays.
let wasPressed = false;
for (const kind of ["input", "keydown", "click"]) {
  document.addEventListener(kind, (event) => {
    if (/_(is|are)_new$/.test(event.target.id)) return; // The page's own press, see `showNews`.
    wasPressed = kind === "click" && event.target.closest?.("button.primary") != null;
  }, true);
}
const keptNotice = (shown) => (wasPressed ? shown : "");

// On a narrow screen the result is below the fold: scroll to it (to the top of its card if cards are
// stacked), unless the request was refused, because then the reason is beside the button.
// Whoever clicks elsewhere in the meantime has moved on.
let bringResult;
document.addEventListener("click", (event) => {
  if (event.isTrusted) clearTimeout(bringResult); // not the page's own press, see `showNews`
  const button = event.target.closest(Object.keys(RESULTS).map((id) => "#" + id).join());
  if (!button) return;
  document.documentElement.dataset.pressed = "";
  const [notice, result] = RESULTS[button.id];
  bringResult = setTimeout(() => {
    if (document.querySelector(`${notice} .problem`)) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const shown = document.querySelector(result);
    const card = matchMedia("(max-width: 860px)").matches && shown.closest(".area-result");
    const block = card ? "start" : "nearest";
    (card || shown).scrollIntoView({ block, behavior: calm ? "auto" : "smooth" });
  }, 400);
});

// An error may arrive while the result, or another part, is visible.
let told = null;
function showProblem() {
  const notices = Object.values(RESULTS).map(([notice]) => `${notice} .problem`);
  const problem = document.querySelector(notices.join());
  if (problem && problem !== told) problem.scrollIntoView({ block: "nearest" });
  told = problem;
}

// Fixes Gradio's accessibility: buttons are not a list. Gradio also sets the page's language to the browser's, so that browsers would not offer to
// translate it.
new MutationObserver(() => {
  showProblem();
  tellPhase();
  if (document.documentElement.lang !== "en") document.documentElement.lang = "en";
  document.querySelector("#chat .examples[role=list]")?.removeAttribute("role");
}).observe(document.documentElement, { childList: true, subtree: true, attributeFilter: ["lang"] });

// Tab closes an open list: Gradio's stays open, and Escape closes it.
document.addEventListener("keydown", ({ key, target }) => {
  if (key !== "Tab" || !target.matches?.('input[aria-expanded="true"]')) return;
  target.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
});

// Clocks and progress bars continue between two answers of the server.
const answered = new WeakMap();
setInterval(() => {
  for (const shown of document.querySelectorAll("[data-spent]")) {
    const { spent: sent, expected } = shown.dataset;
    // Gradio may leave the element and change its attribute.
    if (answered.get(shown)?.sent !== sent) answered.set(shown, { sent, since: performance.now() - 1000 * sent });
    const spent = (performance.now() - answered.get(shown).since) / 1000;
    const whole = Math.floor(spent);
    // A bar is never full before its work has ended.
    const share = Math.min(97, (100 * spent) / expected);
    if (expected) shown.firstElementChild.style.width = `${share}%`;
    if (expected) shown.ariaValueNow = share.toFixed();
    else shown.textContent = whole < 120 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
  }
}, 250);

// The phase of this visitor's run is also shown in the place of its result.
let toldPhase = "";
function tellPhase() {
  const { name, more, share, badge } = document.getElementById("phase")?.dataset ?? {};
  if (toldPhase === name + more + share) return;
  toldPhase = name + more + share;
  if (!name) return;
  for (const mark of document.querySelectorAll(".report.busy .badge.outcome-none")) mark.textContent = badge;
  for (const [part, text] of [["name", name], ["more", more]]) {
    for (const place of document.querySelectorAll(`.phase .phase-${part}`)) {
      if (place.textContent !== text) place.textContent = text;
    }
  }
  for (const bar of document.querySelectorAll(".phase-share")) {
    bar.hidden = !Number(share);
    bar.ariaValueNow = 100 * share;
    bar.firstElementChild.style.width = `${100 * share}%`;
  }
}

// While the page is visible, checks once a second whether there is anything new to show; only then,
// and only for the visible mode, Gradio's events request it: each costs the browser a tenth of a
// second.
const seen = {};
let marks = {};
function showNews() {
  const { status, offered, engine } = marks;
  for (const [what, mark] of Object.entries({ status, offered, [modeInSight]: engine })) {
    const button = document.getElementById(`${what}_is_new`);
    // If the server has no marks, a mode is filled once.
    const isKnown = what in seen && (mark === undefined || seen[what] === mark);
    if (!button || isKnown) continue;
    seen[what] = mark;
    button.click();
  }
}
// Without a server nothing can be started: main buttons are off until it answers again.
let failures = 0;
function noteConnection(isThere) {
  failures = isThere ? 0 : failures + 1;
  const isLost = failures > 1; // A request may fail once.
  const root = document.documentElement;
  if (isLost !== "lost" in root.dataset) {
    if (isLost) root.dataset.lost = "";
    else delete root.dataset.lost;
  }
  for (const button of document.querySelectorAll("#modes button:is(.primary, .secondary, .stop)")) {
    if (isLost && !button.disabled) button.dataset.lost = "";
    if ("lost" in button.dataset) button.disabled = isLost;
    if (!isLost) delete button.dataset.lost;
  }
}
let isLooking = false; // A busy server is not asked again before it has answered.
async function look() {
  stands ||= isBuilt() && isAnswered();
  if (document.hidden || isLooking) return;
  isLooking = true;
  // Not Gradio's root, which is wrong where a proxy hides port or scheme.
  const here = location.pathname.replace(/\/?$/, "/");
  // A proxy may answer with its own page.
  marks = await fetch(`${here}changes`, { cache: "no-store" })
    .then((answer) => (answer.ok ? answer.json().catch(() => ({})) : {}))
    .catch(() => null);
  isLooking = false;
  noteConnection(marks !== null);
  marks ??= {};
  showNews();
}
setInterval(look, 1000);
document.addEventListener("visibilitychange", look);

// Gradio's API panel requests MCP tools even if there are none; without this answer the console would
// show an error.
const send = window.fetch;
window.fetch = (address, ...options) =>
  String(address).endsWith("/gradio_api/mcp/schema") && !window.gradio_config?.mcp_server
    ? Promise.resolve(new Response(null, { status: 404 }))
    : send(address, ...options);
