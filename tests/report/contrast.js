// Visible texts whose contrast with what is behind them is below 4.5 (WCAG 2, 1.4.3), by element and colours.
() => {
  const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = numbers(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
  };
  const low = {};
  for (const element of document.querySelectorAll("main *")) {
    const drawn = element instanceof SVGElement;
    const text = Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || !element.checkVisibility() || (drawn && element.tagName !== "text")) continue;
    const style = getComputedStyle(element);
    const front = numbers(drawn ? style.fill : style.color), back = behind(element);
    const [dark, bright] = [luminance(front), luminance(back)].sort((a, b) => a - b);
    const ratio = (bright + 0.05) / (dark + 0.05);
    if (ratio < 4.5) low[`${element.tagName} ${front} on ${back}`] = `${ratio.toFixed(2)}: ${element.textContent.slice(0, 40)}`;
  }
  return low;
}
