// The visitor's conversations in localStorage, each under its own id, so that two windows do not
// overwrite each other's. The open conversation and the draft are stored per window.
const CHAT = "xla-playground-chat-";
const CHAT_HERE = "xla-playground-chat-here";
const SALT = "xla-playground-visitor";

const here = allowed(() => JSON.parse(sessionStorage.getItem(CHAT_HERE)), null) ?? {};
function noteHere(changes) {
  Object.assign(here, changes);
  allowed(() => sessionStorage.setItem(CHAT_HERE, JSON.stringify(here)));
}
// A sent message becomes a draft again if the page is reloaded before its answer.
const keepDraft = (draft) => noteHere({ draft });
function sending(values, [text, salt]) {
  // While an answer is generated another question is refused, and stays a draft.
  if (!document.querySelector("#chat :is(.busy, .caret)")) noteHere({ sent: values[text] });
  // The page's salt field is filled only after loading, which may be later.
  return values.map((value, at) => (at === salt ? visitorSalt : value));
}
const keptChat = (chat) => allowed(() => localStorage.getItem(CHAT + chat), null) ?? "";
let chosen = null; // in the list; the event that opens it cannot tell
const chooseChat = (chat) => (chosen = chat);
const chosenChat = () => keptChat(chosen);
const chatBefore = () => [
  keptChat(here.chat),
  (here.cut ? [here.draft] : [here.sent, here.draft]).filter(Boolean).join("\n"),
  arrived === "reload" || arrived === "back_forward",
  visitorSalt,
  here.cut ? here.sent : "",
  here.cut ?? "",
];
// The button below an interrupted answer presses Gradio's retry button.
document.addEventListener("click", (event) => {
  const isRetry = event.target.closest?.(".chat-retry");
  if (isRetry) document.querySelector("#chat button[aria-label=Retry]").click();
});

// An answer is edited in place: the button below it saves the change, Escape cancels it.
let edited = null; // which answer, and its new text, until Gradio's event fetches it
const editedAnswer = () => JSON.stringify(edited);
document.addEventListener("click", ({ target }) => {
  const button = target.closest?.(".chat-edit");
  if (!button) return;
  const answer = button.closest("[data-testid]").querySelector("[data-text]");
  const open = answer.querySelector("textarea");
  if (open) {
    edited = [[...document.querySelectorAll("#chat [data-text]")].indexOf(answer), open.value];
    document.getElementById("chat_answer_edited").click();
    return;
  }
  const shown = [...answer.childNodes];
  const area = made("textarea", { value: answer.dataset.text, ariaLabel: "Answer" });
  area.onkeydown = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    answer.replaceChildren(...shown);
    button.textContent = "Edit";
  };
  answer.replaceChildren(area);
  area.focus();
  button.textContent = "Save";
});

// The cache salt: a secret, so that only this browser reuses its prefixes.
const visitorSalt = (() => {
  const drawn = crypto.getRandomValues(new Uint8Array(16));
  const salt = [...drawn].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return allowed(() => {
    if (!localStorage.getItem(SALT)) localStorage.setItem(SALT, salt);
    return localStorage.getItem(SALT);
  }, salt);
})();

// Saves one conversation, deletes another, and lists all, as JSON texts.
function keepChats(_, opened, removed) {
  const isKept = allowed(() => {
    const chat = JSON.parse(opened);
    noteHere({ chat: chat.id, sent: "", cut: "" });
    if (removed) localStorage.removeItem(CHAT + JSON.parse(removed).id);
    if (chat.turns.length) localStorage.setItem(CHAT + chat.id, opened);
    else localStorage.removeItem(CHAT + chat.id);
    return true;
  }, false);
  const names = allowed(() => Object.keys(localStorage), []).filter((name) => name.startsWith(CHAT));
  const chats = names.flatMap((name) =>
    allowed(() => {
      const { id, name: title, changed_s, turns } = JSON.parse(localStorage.getItem(name));
      return [{ id, name: title, changed_s, turns: turns.length }];
    }, []),
  );
  return [JSON.stringify({ isKept, chats }), opened, removed];
}

// Another window has changed a conversation.
window.addEventListener("storage", ({ key }) => {
  if (key?.startsWith(CHAT)) document.getElementById("chats_are_new")?.click();
});

// The text of each answer as the model wrote it.
copyAtClick(".chat-copy", (button) =>
  button.closest("[data-testid]").querySelector("[data-text]").dataset.text,
);

// Gradio copies a question with escaped markup.
document.addEventListener("click", (event) => {
  const buttons = event.target.closest?.("#chat .message-buttons");
  const shown = buttons?.previousElementSibling?.querySelector("[data-testid=user]")?.textContent;
  if (shown?.includes("\u2060")) setTimeout(() => copied(shown.replaceAll("\u2060", "")), 100);
});
