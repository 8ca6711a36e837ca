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
