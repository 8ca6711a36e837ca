// What this browser keeps for its visitor besides Gradio's own state.
//
// The request that was being written, for a page that is loaded anew: by window, so two windows do not
// write over each other.
const REQUEST = "xla-playground-request";
const writtenBefore = allowed(() => sessionStorage.getItem(REQUEST), null) ?? "";
const arrived = performance.getEntriesByType("navigation")[0]?.type;
// A link in the address of a page that is loaded anew, or come back to, was followed before.
const requestBefore = () => [writtenBefore, arrived === "reload" || arrived === "back_forward", cutBefore];
// A text that is being written when the page is left stays, as far as it has come.
const CUT = "xla-playground-cut";
const cutBefore = allowed(() => sessionStorage.getItem(CUT), null) ?? "";
addEventListener("pagehide", () => {
  const isWriting = document.querySelector("#story .caret") !== null;
  const text = isWriting ? document.querySelector("#story .story-new").textContent : "";
  allowed(() => sessionStorage.setItem(CUT, text));
  const answer = document.querySelector("#chat .caret")?.closest("[data-testid]");
  noteHere({ cut: answer?.querySelector("[data-text]")?.dataset.text ?? "" });
});
let isFilledIn = false; // What the page starts with nobody has written.
// `places` are those of whether the seed is held, and of the settings in their order.
function keepRequest(values, places) {
  const [holds, ...settings] = places.map((place) => values[place]);
  const written = JSON.stringify(settingsOf(SETTINGS, settings, holds));
  if (isFilledIn) allowed(() => sessionStorage.setItem(REQUEST, written));
  isFilledIn = true;
  return values;
}

// The visitor's runs. Each window tells the others of this browser what has changed: what it had and
// what it has. Of equal lists nothing is told, so two windows come to an end.
const otherWindows = "BroadcastChannel" in window ? new BroadcastChannel("xla-playground-runs") : null;
let ownRuns = null;
const news = []; // of other windows, until Gradio's event fetches it
function tellRuns(runs) {
  const before = ownRuns;
  ownRuns = runs;
  const isNew = before && JSON.stringify(before) !== JSON.stringify(runs);
  if (isNew) otherWindows?.postMessage({ before, after: runs });
  for (const mode of ["runs", "statistics"]) delete seen[mode];
  showNews();
}
// Gradio keeps the runs, and tells only the console where the browser has no room for them.
const setItem = Storage.prototype.setItem;
Storage.prototype.setItem = function (name, value) {
  try {
    setItem.call(this, name, value);
  } catch (error) {
    if (name === "xla-playground-runs") document.getElementById("runs_are_lost")?.click();
    throw error;
  }
};
const runsOfOthers = () => JSON.stringify(news.splice(0));
otherWindows?.addEventListener("message", ({ data }) => {
  if (JSON.stringify(data.after) === JSON.stringify(ownRuns)) return;
  news.push(data);
  document.getElementById("runs_are_new")?.click();
});
