// What is stored in the browser besides Gradio's state.
//
// The draft of the request, per window, for a reload of the page.
const REQUEST = "xla-playground-request";
const writtenBefore = allowed(() => sessionStorage.getItem(REQUEST), null) ?? "";
const arrived = performance.getEntriesByType("navigation")[0]?.type;
// A link in the address was already used when the page is reloaded or returned to.
const requestBefore = () => [writtenBefore, arrived === "reload" || arrived === "back_forward", cutBefore];
// A text that is being generated when the page is left is stored as far as it is complete.
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
// `places`: the indices of the columns, of the held-seed switch and of the settings, in order.
function keepRequest(values, places) {
  const [columns, holds, ...settings] = places.map((place) => values[place]);
  const written = JSON.stringify({ ...settingsOf(SETTINGS, settings, holds), columns });
  if (isFilledIn) allowed(() => sessionStorage.setItem(REQUEST, written));
  isFilledIn = true;
  return values;
}

// The visitor's runs. Each window sends changes to the browser's other windows, with the list before
// and after. Equal lists are not sent, so that two windows do not echo forever.
const otherWindows = "BroadcastChannel" in window ? new BroadcastChannel("xla-playground-runs") : null;
let ownRuns = null;
const news = []; // of other windows, until Gradio's event fetches it
function tellRuns(runs) {
  const before = ownRuns;
  ownRuns = runs;
  const isNew = before && JSON.stringify(before) !== JSON.stringify(runs);
  if (isNew) otherWindows?.postMessage({ before, after: runs });
  delete seen.runs;
  showNews();
}
// Gradio stores the runs, and reports a full localStorage only to the console.
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
