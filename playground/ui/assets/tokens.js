// On load of the tokens' HTML, `element`: the popover of the token that is pointed at.
// The Tab key stops once for all tokens; the arrow keys move between them.
const tokens = () => [...element.querySelectorAll("button.token")];
const find = (event) => event.target.closest?.("button.token");
const part = (name) => element.querySelector(".token-" + name);
let pinned = null;
let [shown, shownAt] = [null, 0]; // the token of the popover, and where it was then

const add = (parent, tag, style, text) => {
  const child = document.createElement(tag);
  child.className = style;
  child.textContent = text;
  parent.append(child);
  return child;
};
const show = (token) => {
  const popover = part("popover");
  if (part("detail").textContent !== token.dataset.detail) {
    part("detail").textContent = token.dataset.detail;
    const list = popover.querySelector("ol");
    list.replaceChildren();
    const canBranch = popover.parentElement.hasAttribute("data-branches");
    for (const [rank, line] of token.dataset.topLogprobs.split("\n").entries()) {
      const [text, share, width, style] = line.split("\t");
      const row = add(list, "li", style, "");
      const isEnd = /^<.*>$/.test(text);
      if (canBranch && !style && !isEnd) {
        const button = add(row, "button", "alternative", "");
        Object.assign(button.dataset, { place: tokens().indexOf(token), rank });
        button.type = "button";
        button.title = "Go on from here with this token";
        add(button, "bdi", "", text);
      } else add(row, "bdi", "", text);
      add(add(row, "span", "bar", ""), "i", "", "").style.width = width + "%";
      add(row, "b", "", share);
    }
    popover.querySelector(".token-place").textContent = token.dataset.place;
  }
  popover.hidden = false;
  const [view, box] = [popover.parentElement, token].map((each) => each.getBoundingClientRect());
  const most = view.width - popover.offsetWidth;
  const isBelow = box.bottom + popover.offsetHeight + 6 < innerHeight || box.top < 300;
  [shown, shownAt] = [token, box.top];
  popover.style.left = Math.max(0, Math.min(most, box.left - view.left)) + "px";
  popover.style.top =
    (isBelow ? box.bottom + 6 : box.top - popover.offsetHeight - 6) - view.top + "px";
};
const hide = () => {
  pinned = null;
  if (part("popover")) part("popover").hidden = true;
};
for (const name of ["focusin", "click"]) {
  element.addEventListener(name, (event) => {
    if (!find(event)) return;
    pinned = find(event);
    show(pinned);
  });
}
element.addEventListener("mousemove", (event) => {
  // The box scrolled under a resting mouse: nobody is pointing at anything.
  if (!event.movementX && !event.movementY) return;
  if (find(event)) show(find(event));
  else if (pinned?.isConnected) show(pinned);
  else if (!event.target.closest(".token-popover")) hide();
});
element.addEventListener("mouseleave", () => (pinned?.isConnected ? show(pinned) : hide()));
element.addEventListener("focusout", (event) => {
  if (!part("popover")?.contains(event.relatedTarget)) hide();
});
element.addEventListener("click", (event) => {
  const button = event.target.closest?.("button.alternative");
  if (!button) return;
  const { place, rank } = button.dataset;
  hide();
  trigger("select", { place: Number(place), rank: Number(rank) });
});
// A browser tells late of scrolling: what has not moved since it was shown, stays.
element.addEventListener("scroll", () => {
  if (shown?.getBoundingClientRect().top !== shownAt) hide();
}, true);
document.addEventListener("pointerdown", (event) => {
  if (!element.contains(event.target)) hide();
});
element.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
  const token = find(event);
  if (!token || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = tokens();
  const at = all.indexOf(token);
  const rtl = getComputedStyle(token.parentElement).direction === "rtl";
  const next = {
    ArrowRight: at + (rtl ? -1 : 1), ArrowLeft: at - (rtl ? -1 : 1),
    ArrowDown: at + 10, ArrowUp: at - 10, Home: 0, End: all.length - 1,
  }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const chosen = all[Math.max(0, Math.min(all.length - 1, next))];
  token.tabIndex = -1;
  chosen.tabIndex = 0;
  chosen.scrollIntoView({ block: "nearest" });
  chosen.focus({ preventScroll: true });
});
