// An answer's latency in words: copied as text or Markdown, or drawn as a picture.
copyAtClick('.quote [data-quote="text"]', (button) => {
  const { sentence, about } = button.parentElement.dataset;
  return `${sentence}\n${about}`;
});
copyAtClick('.quote [data-quote="markdown"]', (button) => {
  const { sentence, about, outcome } = button.parentElement.dataset;
  return `> **${outcome.toUpperCase()}** ${sentence}\n>\n> ${about}\n`;
});

// The words of a text in lines no wider than `width`.
function inLines(context, text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? lines.at(-1) + " " + word : word;
    if (lines.at(-1) && context.measureText(longer).width > width) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

function drawQuote({ sentence, about, outcome }) {
  const [width, edge, font] = [1200, 60, "system-ui, sans-serif"];
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const colour = (name) => getComputedStyle(document.body).getPropertyValue("--" + name);
  const [large, small] = [`600 40px ${font}`, `400 24px ${font}`];
  context.font = large;
  const lines = inLines(context, sentence, width - 2 * edge);
  context.font = small;
  const notes = inLines(context, about, width - 2 * edge);
  canvas.width = width;
  canvas.height = 2 * edge + 80 + 54 * lines.length + 34 * notes.length;
  const write = (font, fill, text, x, y) => {
    Object.assign(context, { font, fillStyle: fill, textBaseline: "top" });
    context.fillText(text, x, y);
  };
  context.fillStyle = colour("surface");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.font = `700 26px ${font}`;
  const badge = outcome.toUpperCase();
  context.fillStyle = colour(outcome + "-soft");
  context.beginPath();
  context.roundRect(edge, edge - 10, context.measureText(badge).width + 36, 46, 10);
  context.fill();
  write(`700 26px ${font}`, colour(outcome), badge, edge + 18, edge);
  lines.forEach((line, at) => write(large, colour("ink"), line, edge, edge + 60 + 54 * at));
  const below = edge + 80 + 54 * lines.length;
  notes.forEach((line, at) => write(small, colour("muted"), line, edge, below + 34 * at));
  return canvas;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.('.quote [data-quote="picture"]');
  if (!button) return;
  drawQuote(button.parentElement.dataset).toBlob((picture) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(picture);
    link.download = "latency.png";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
});
