// Keyboard: Ctrl/Cmd+Enter generates, Esc stops. Buttons keep their own rules: a disabled one ignores it.
document.addEventListener("keydown", (event) => {
  const press = (id) => {
    const button = document.getElementById(id);
    if (button && !button.disabled && button.offsetParent !== null) {
      event.preventDefault();
      button.click();
    }
  };
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) press("generate");
  if (event.key === "Escape") press("stop");
});

// On a narrow screen the text begins below the fold: bring it into sight, unless the request was
// refused, for then the reason beside the button is what matters.
document.addEventListener("click", (event) => {
  if (!event.target.closest("#generate")) return;
  setTimeout(() => {
    if (document.querySelector("#notice .problem")) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const story = document.querySelector("#story .story");
    story.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
  }, 400);
});
