// A request as settings by name: the form of links, presets and drafts.
function settingsOf(names, values, holdsSeed) {
  const settings = {};
  names.forEach((name, i) => {
    const value = values[i];
    const isLeftOut = value === null || value === undefined || (value === "" && name !== "prompt");
    const isUsual = (value === false && name !== "exact_key") || (name === "answer_as" && value === "Text");
    if (isLeftOut || isUsual || (name === "seed" && !holdsSeed)) return;
    // A folder's path is private to the server: its last part is the model's name.
    settings[name] = name === "model" ? value.replace(/^\/.*\//, "") : value;
  });
  return settings;
}

// A sentence as a notice.
function noticed(sentence, kind = "calm") {
  const shown = document.createElement("div");
  shown.className = `notice ${kind}`;
  shown.role = kind === "calm" ? "status" : "alert";
  shown.textContent = sentence;
  return shown.outerHTML;
}

// The clipboard is only available directly after a click. Some servers and proxies refuse longer
// links.
const LONGEST = 8000;
const SHARED = ["prompt", "messages", "variables"]; // of all columns
async function copyLink(tab, names, values, runs, columns) {
  let settings = settingsOf(names, values, true);
  if (settings.answer_as !== "Choice") delete settings.choices;
  const { columns: all = [], chosen } = JSON.parse(columns || "{}");
  if (all.length > 1) {
    const own = all.map((each) => settingsOf(Object.keys(each), Object.values(each), true)).with(chosen, settings);
    const entries = own.flatMap((column, i) => {
      const at = ["left", "right", "third"][i];
      return Object.entries({ answer_as: "Text", ...column }).map(([name, value]) => [`${at}.${name}`, value]);
    });
    const isOwn = (name) => !SHARED.includes(name.split(".").pop());
    const shared = Object.entries(settings).filter(([name]) => !isOwn(name));
    settings = Object.fromEntries([...shared, ...entries.filter(([name]) => isOwn(name))]);
  }
  const query = new URLSearchParams({ tab, ...settings });
  if (runs) query.set("run", "true");
  // On Spaces this is the address of the page's frame. It is percent-encoded, so nothing in it can
  // become markup.
  const link = `${location.origin}${location.pathname}?${query}`;
  if (link.length > LONGEST) {
    return noticed(
      `The request is too long for a link: ${link.length} characters, and ${LONGEST} are safe. Shorten it, or ` +
        "save it as a preset.",
      "problem",
    );
  }
  if (!(await copied(link))) {
    return `<div class="notice problem" role="alert">The browser does not let this page copy. The link is
      <a href="${link}">here</a>: copy it from there.</div>`;
  }
  return noticed(`Link copied. It opens the page with these settings${runs ? " and runs them" : ""}.`);
}

// A visitor's presets, each under its name, so that two windows do not overwrite each other's.
const PRESET = "xla-playground-preset-";
const NO_ROOM =
  "This browser has no room for more presets, or keeps nothing for this page. Delete some, or copy a link.";
const presetNames = () =>
  allowed(() => Object.keys(localStorage), [])
    .filter((name) => name.startsWith(PRESET))
    .map((name) => name.slice(PRESET.length))
    .sort((one, other) => one.localeCompare(other));
let ownPresets = []; // the page's own, which stand before the visitor's
function presetButtons(own = ownPresets) {
  ownPresets = own;
  const names = [...own, ...presetNames()];
  const buttons = names.map((name, at) => {
    const button = made("button", { type: "button", textContent: name });
    button.dataset.at = at;
    return button;
  });
  const group = made("div", { className: "names", role: "group", ariaLabel: "Presets" },
    made("p", { textContent: "Presets" }), made("div", {}, ...buttons));
  return { __type__: "update", value: group.outerHTML };
}
const keptPreset = (name) => ({ ...JSON.parse(localStorage.getItem(PRESET + name)), name });
let pressedName = 0; // The index of the button that was pressed last in a row of names.
function choosePreset(values, [pressed, chosen]) {
  const name = presetNames()[pressedName - ownPresets.length];
  const preset = name === undefined ? "" : JSON.stringify(keptPreset(name));
  return values.with(pressed, pressedName).with(chosen, preset);
}
function savePreset(name, holdsSeed, ...values) {
  name = name?.trim();
  if (!name) return [noticed("Give the preset a name, then save it.", "problem"), presetButtons()];
  const settings = JSON.stringify(settingsOf(SETTINGS, values, holdsSeed));
  const isKept = allowed(() => (localStorage.setItem(PRESET + name, settings), true), false);
  return [isKept ? noticed(`“${name}” is saved in this browser.`) : noticed(NO_ROOM, "problem"), presetButtons()];
}
function deletePreset(name) {
  name = name?.trim();
  if (!presetNames().includes(name)) {
    return [noticed("Choose one of your presets, then delete it.", "problem"), presetButtons()];
  }
  allowed(() => localStorage.removeItem(PRESET + name));
  return [noticed(`“${name}” is deleted. Save keeps what stands in the fields.`), presetButtons()];
}
window.addEventListener("storage", ({ key }) => {
  if (key?.startsWith(PRESET)) document.getElementById("presets_are_new")?.click();
});

// The text of a file that the visitor chooses, cut behind 2 MB; empty if none is chosen. A browser opens
// its dialog only while it handles the click.
const MOST_BYTES = 2 * 2 ** 20;
let chosenFile = Promise.resolve("");
document.addEventListener("click", ({ target }) => {
  if (!target.closest?.("#import_json, #chat_import")) return;
  const input = made("input", { type: "file", accept: ".json" });
  chosenFile = new Promise((done) => {
    input.onchange = () => input.files[0].slice(0, MOST_BYTES + 1).text().then(done);
    input.oncancel = () => done("");
  });
  input.click();
}, true);
function saveFile(file) {
  if (!file) return;
  const { name, type, text } = file;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// An element with its children.
function made(tag, properties = {}, ...parts) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...parts);
  return element;
}
const field = (value, label, told) =>
  made("textarea", { value, ariaLabel: label, rows: 1, oninput: told });

// The editor of messages before the prompt; the component's value is their JSON.
function editMessages(element, props, watch, changed) {
  const rows = made("div", { className: "messages" });
  const add = made("button", { type: "button", textContent: "Add an earlier message" });
  const begin = made("button", { type: "button", textContent: "Begin the answer" });
  const tell = () => {
    const messages = [...rows.children].map((row) => ({
      ...row.call, // of a tool, or the id of the one whose result this is
      role: row.querySelector("select").value,
      content: row.querySelector("textarea").value,
    }));
    props.value = messages.length ? JSON.stringify(messages) : "";
    changed();
  };
  const button = (label, sign, act) =>
    made("button", {
      type: "button",
      ariaLabel: label,
      title: label,
      textContent: sign,
      onclick: ({ target }) => {
        act(target.closest(".message-row"));
        tell();
      },
    });
  const rowOf = ({ role, content, ...call }) => {
    const options = ["user", "assistant", "system", "tool"].map((each) =>
      made("option", { value: each, textContent: each[0].toUpperCase() + each.slice(1), selected: each === role }),
    );
    return made(
      "div",
      { className: "message-row", call },
      made("select", { ariaLabel: "Role", onchange: tell }, ...options),
      button("Move up", "↑", (row) => row.previousElementSibling?.before(row)),
      button("Move down", "↓", (row) => row.nextElementSibling?.after(row)),
      button("Remove", "×", (row) => row.remove()),
      field(content, "Message", tell),
      ...(call.tool_calls ?? []).map(({ function: { name, arguments: given } }) =>
        made("code", { textContent: `${name}(${JSON.stringify(given)})` }),
      ),
    );
  };
  const draw = () => {
    const messages = allowed(() => JSON.parse(props.value || "[]"), []);
    rows.replaceChildren(...messages.map(rowOf));
  };
  add.onclick = () => {
    const last = rows.lastElementChild?.querySelector("select").value;
    rows.append(rowOf({ role: last === "user" ? "assistant" : "user", content: "" }));
    rows.lastElementChild.querySelector("textarea").focus();
    tell();
  };
  begin.onclick = () => {
    document.documentElement.dataset.begun = "1";
    document.querySelector("#begins_with textarea").focus();
  };
  element.replaceChildren(rows, add, " ", begin);
  draw();
  watch("value", () => {
    draw();
    changed();
  });
}

// A field for each variable of the texts (the last text is the beginning of the answer, if any); the
// component's value is a JSON object of their values.
let drawVariables = () => {};
let variableNames = [];
function showVariables(texts, pattern) {
  if (texts.at(-1)) document.documentElement.dataset.begun = "1";
  const names = texts.flatMap((text) => [...(text ?? "").matchAll(pattern)].map(([, name]) => name.toLowerCase()));
  const found = [...new Set(names)];
  if (found.join("\n") === variableNames.join("\n")) return;
  variableNames = found;
  drawVariables();
}
function editVariables(element, props, watch, changed) {
  const values = () => allowed(() => JSON.parse(props.value || "{}"), {});
  const fieldOf = (name) => {
    const told = ({ target }) => {
      const all = { ...values(), [name]: target.value };
      if (!target.value) delete all[name];
      props.value = Object.keys(all).length ? JSON.stringify(all) : "";
      changed();
    };
    return made("label", {}, made("bdi", { textContent: name }), field(values()[name] ?? "", name, told));
  };
  drawVariables = () => {
    element.className = "variables";
    element.replaceChildren(...variableNames.map(fieldOf));
  };
  drawVariables();
  watch("value", () => {
    drawVariables();
    changed();
  });
}
