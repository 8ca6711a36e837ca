// Copies a text; returns whether the browser allowed it.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without HTTPS there is no clipboard API: use the older way.
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

// The label of a button after copying.
const copiedOrNot = async (text) => ((await copied(text)) ? "Copied" : "The browser forbids it");

// Answers are added and removed, so all copy buttons share one listener.
function copyAtClick(buttons, textOf) {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.(buttons);
    if (button) button.textContent = await copiedOrNot(textOf(button));
  });
}
copyAtClick(".copied-code button", (button) => button.nextElementSibling.textContent);
copyAtClick(".quote", (button) => button.dataset.quote);
