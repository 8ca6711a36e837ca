// The page in the visitor's language: what Gradio and our modules show in English is looked up in the
// table and replaced, now and whenever something new is shown. Nothing runs while it is English.

// A browser may forbid what a page wants to keep, in a frame above all; and it may be full.
function allowed(what, otherwise) {
  try {
    return what();
  } catch {
    return otherwise;
  }
}
(() => {
  const directions = LANGUAGES;
  const kept = "xla-playground-language";
  // What visitors and models have written is marked as of any direction; code is no language.
  const foreign = "[dir=auto], [translate=no], script, style, textarea, pre, code, kbd, .cm-editor, #language, [data-testid=user]";
  const headings = "h3, summary";
  const inline = new Set(["A", "B", "BR", "CODE", "EM", "I", "KBD", "SMALL", "STRONG"]);
  const attributes = ["placeholder", "title", "aria-label", "data-label"];
  const html = /<\w/;
  const ends = /(?<=[.!?…]["”]?)\s+(?=[A-Z“"<])/;

  const known = (code) => {
    const [asked, first] = [code.toLowerCase(), code.toLowerCase().split("-")[0]];
    const codes = Object.keys(directions);
    const same = (each) => each.toLowerCase() === asked;
    return codes.find(same) ?? codes.find((each) => each.split("-")[0] === first);
  };
  const stored = allowed(() => localStorage.getItem(kept), null);
  const asked = [new URLSearchParams(location.search).get("lang"), stored, ...navigator.languages];
  let current = asked.filter(Boolean).map(known).find(Boolean) ?? "en";

  // ---- one text

  // Fetched once it is wanted: the tables together would be larger than the page.
  const tables = { en: {} };
  const fetchTable = async (code) => {
    const root = window.gradio_config?.root ?? "";
    // Revalidated: a table that the browser has kept may lack the texts of a newer page.
    const answer = await fetch(`${root}/translations/${code}.json`, { cache: "no-cache" });
    if (answer.ok) tables[code] = await answer.json();
  };

  let exact, patterns, memo;
  const learn = (table) => {
    exact = new Map();
    patterns = [];
    memo = new Map();
    for (const [english, said] of Object.entries(table)) {
      const parts = english.split(/\{([a-n])\}/);
      if (parts.length === 1) {
        exact.set(english, said);
        continue;
      }
      const names = parts.filter((_, place) => place % 2);
      const written = parts.filter((_, place) => !(place % 2));
      const source = written
        .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
        .reduce((so_far, part, place) => {
          return so_far + (names[place - 1] < "i" ? "(.+?)" : "([\\d.,]+)") + part;
        });
      const regex = new RegExp(`^${source}$`, "s");
      patterns.push({ regex, names, said, size: written.join("").length, isHtml: html.test(english) });
    }
    patterns.sort((one, other) => other.size - one.size);
  };

  // A value in a text of the other direction keeps its own.
  const inserted = (value) => {
    const text = say(value) ?? value;
    return directions[current] === "rtl" && !text.includes("<") ? `\u2068${text}\u2069` : text;
  };
  const byPattern = (text) => {
    for (const { regex, names, said, isHtml } of patterns) {
      // What stands for anything must not stand for parts of a page.
      const found = isHtml === html.test(text) && regex.exec(text);
      if (!found) continue;
      const values = Object.fromEntries(names.map((name, place) => [name, found[place + 1]]));
      return said.replace(/\{([a-n])\}/g, (_, name) => inserted(values[name]));
    }
    return null;
  };
  // Lists, of which each entry is a text of its own.
  const piecewise = (parts, glue, each) => {
    if (parts.length < 2 || html.test(parts.join())) return null;
    const said = parts.map((part) => (/\p{L}/u.test(part) ? each(part) : part));
    return said.includes(null) ? null : said.join(glue);
  };
  const one = (text) => exact.get(text) ?? byPattern(text);
  const bySentences = (text) => {
    const parts = text.split(ends);
    const joined = [];
    for (let from = 0; from < parts.length; ) {
      let to = from;
      let said = null;
      while (said === null && to < parts.length) said = one(parts.slice(from, ++to).join(" "));
      if (said === null || (from === 0 && to === parts.length)) return null;
      joined.push(said);
      from = to;
    }
    return joined.join(current === "zh-CN" ? "" : " ");
  };
  const say = (text) => {
    if (!memo.has(text)) {
      memo.set(text, null); // A text that contains itself ends here.
      const said =
        exact.get(text) ??
        bySentences(text) ??
        piecewise(text.split(" · "), " · ", say) ??
        piecewise(text.split(", "), current === "ar" ? "، " : ", ", say) ??
        byPattern(text);
      // A full stop after a value of the other direction would look like its decimal point.
      memo.set(text, said && said.replace(/([A-Za-z0-9%×])\u2069\.$/, "$1\u2069"));
    }
    return memo.get(text);
  };

  // ---- the page

  // By node: what it said in English, and what it was made to say.
  const texts = new WeakMap();
  const units = new WeakMap();
  const labels = new WeakMap();
  const choices = new WeakMap();

  const replace = (source) => {
    const key = source.trim().replace(/\s+/g, " ");
    const said = /[A-Za-z]/.test(key) ? say(key) : null;
    return said === null ? null : source.replace(source.trim(), () => said);
  };
  const translateText = (node) => {
    if (texts.get(node)?.shown === node.nodeValue) return;
    const shown = replace(node.nodeValue);
    if (shown === null) return;
    texts.set(node, { source: node.nodeValue, shown });
    node.nodeValue = shown;
  };
  const translateAttribute = (element, name) => {
    const value = element.getAttribute(name);
    const all = labels.get(element) ?? {};
    if (!value || all[name]?.shown === value) return;
    const shown = replace(value);
    if (shown === null) return;
    labels.set(element, { ...all, [name]: { source: value, shown } });
    element.setAttribute(name, shown);
  };
  // A sentence with words in bold is one text: their order differs from language to language.
  const translateUnit = (element) => {
    const children = [...element.childNodes];
    const isUnit =
      children.some((child) => child.nodeType === Node.ELEMENT_NODE) &&
      children.some((child) => child.nodeType === Node.TEXT_NODE && /\w/.test(child.nodeValue)) &&
      children.every((child) => child.nodeType === Node.TEXT_NODE || inline.has(child.tagName));
    if (!isUnit) return false;
    if (units.get(element)?.shown === element.innerHTML) return true;
    const source = element.innerHTML;
    const shown = replace(source);
    if (shown === null) return false;
    element.innerHTML = shown;
    units.set(element, { source, shown: element.innerHTML });
    return true;
  };
  // What stands in a closed list is an input's value, and no change of that is ever told. So Gradio
  // goes on writing and reading English, and what is shown is set in between.
  const native = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
  const translateChoice = (input) => {
    if (choices.has(input)) return;
    const set = (source) => {
      choices.set(input, { source, shown: replace(source ?? "") ?? source });
      native.set.call(input, choices.get(input).shown);
    };
    const get = () => {
      const typed = native.get.call(input);
      return typed === choices.get(input).shown ? choices.get(input).source : typed;
    };
    set(input.value);
    Object.defineProperty(input, "value", { configurable: true, get, set });
  };
  const restoreChoice = (input) => {
    const source = input.value;
    choices.delete(input);
    delete input.value;
    input.value = source;
  };
  // What the page says inside of what is not its own.
  const translateHeadings = (node) => {
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    const within = node.matches(headings) ? [node] : node.querySelectorAll(headings);
    for (const heading of within) heading.childNodes.forEach(translate);
  };
  const translate = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return translateText(node);
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    if (node.matches("input[role=combobox]")) translateChoice(node);
    for (const name of attributes) if (node.hasAttribute(name)) translateAttribute(node, name);
    if (node.matches(foreign)) {
      translateHeadings(node);
    } else if (!translateUnit(node)) {
      for (const child of [...node.childNodes]) translate(child);
    }
  };
  const restore = (node) => {
    if (node.nodeType === Node.TEXT_NODE) {
      const { source, shown } = texts.get(node) ?? {};
      if (shown !== undefined && shown === node.nodeValue) node.nodeValue = source;
    } else if (node.nodeType === Node.ELEMENT_NODE) {
      for (const [name, { source, shown }] of Object.entries(labels.get(node) ?? {})) {
        if (node.getAttribute(name) === shown) node.setAttribute(name, source);
      }
      if (choices.has(node)) restoreChoice(node);
      const { source, shown } = units.get(node) ?? {};
      if (shown !== undefined && shown === node.innerHTML) node.innerHTML = source;
      node.childNodes.forEach(restore);
    }
  };
  const isForeign = (node) => {
    const element = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
    return !element || (element.closest(foreign) && !element.closest(headings));
  };
  // What was added inside a sentence changes the sentence.
  const around = (node) => {
    const parent = node.parentElement;
    return parent && units.has(parent) ? parent : node;
  };
  const observer = new MutationObserver((changes) => {
    for (const { type, target, addedNodes, attributeName } of changes) {
      if (type === "attributes") translateAttribute(target, attributeName);
      else if (isForeign(target)) addedNodes.forEach(translateHeadings);
      else if (type === "characterData") translate(around(target));
      else addedNodes.forEach((node) => node.isConnected && translate(around(node)));
    }
    choose();
  });

  // ---- the switch

  const choose = () => {
    const list = document.getElementById("language");
    if (list && list.value !== current) list.value = current;
  };
  const speak = async () => {
    const wanted = current;
    if (!tables[wanted]) await fetchTable(wanted).catch(() => {});
    if (wanted !== current) return; // Another was chosen meanwhile.
    observer.disconnect();
    Object.assign(document.documentElement, { lang: current, dir: directions[current] });
    learn(tables[wanted] ?? {}); // English where it cannot be had.
    if (!document.body) return;
    restore(document.body);
    if (current !== "en") {
      translate(document.body);
      observer.observe(document.body, {
        childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: attributes,
      });
    }
    choose();
    // Labels have other widths now: Gradio decides anew which tabs have room.
    dispatchEvent(new Event("resize"));
  };
  // Gradio speaks the browser's language in what it writes itself; its module that changes it is one
  // of those that the page has loaded.
  const tellGradio = async () => {
    const names = performance.getEntriesByType("resource").map((each) => each.name);
    const address = names.find((name) => /\/core-[^/]*\.js$/.test(name));
    if (address) (await import(address)).changeLocale(current);
  };
  document.addEventListener("change", (event) => {
    if (event.target.id !== "language") return;
    current = event.target.value;
    allowed(() => localStorage.setItem(kept, current)); // Else it holds for this visit.
    const address = new URL(location.href);
    address.searchParams.delete("lang");
    history.replaceState(history.state, "", address);
    speak();
    tellGradio();
  });
  Object.assign(document.documentElement, { lang: current, dir: directions[current] });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", speak);
  else speak();
  tellGradio();
})();
