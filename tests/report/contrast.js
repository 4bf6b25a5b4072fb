// [contrast, words] of every text that is shown, by its colour and the layers behind it (WCAG 2).
() => {
  const rgba = text => { const v = text.match(/[\d.]+/g).map(Number); return v.length > 3 ? v : [...v, 1]; };
  const over = (top, under) => [0, 1, 2].map(i => top[3] * top[i] + (1 - top[3]) * under[i]).concat(1);
  const behind = e => {
    const layers = [];
    for (let p = e; p; p = p.parentElement) layers.push(rgba(getComputedStyle(p).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    const shown = e.checkVisibility({opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true});
    if (!walk.currentNode.textContent.trim() || !e.getClientRects().length || !shown) continue;
    const style = getComputedStyle(e), under = behind(e);
    let ink = rgba(style.color);
    for (let p = e; p; p = p.parentElement) ink[3] *= Number(getComputedStyle(p).opacity);
    const [a, b] = [light(over(ink, under)), light(under)].sort((x, y) => y - x);
    const words = walk.currentNode.textContent.trim().slice(0, 40);
    found.push([(a + .05) / (b + .05), `${e.tagName} ${e.className}: ${words}`]);
  }
  return found;
}
