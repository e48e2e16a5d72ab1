"use strict";
// Links lead into closed rows: open whatever holds the target.
const follow = () => {
  const target = document.getElementById(location.hash.slice(1));
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", follow);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (link && link.getAttribute("href") === location.hash) follow();
});
follow();

const copy = async (button) => {
  const lines = document.querySelectorAll(`#${button.dataset.copy} li`);
  const text = Array.from(lines, (line) => line.textContent + "\n").join("");
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {  // a page that is not served securely may not write: the reader's own keys can
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = "Selected: press Ctrl-C";
  }
};
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}
for (const button of document.querySelectorAll("button[data-rows]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const rows = Array.from(document.querySelectorAll(`#${button.dataset.rows} > details`));
    const open = rows.some((row) => !row.open);
    for (const row of rows) row.open = open;
    button.textContent = open ? "Close all" : "Open all";
  });
}
