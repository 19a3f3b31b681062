// A list of which only what is near the window is in the page.

class VirtualList {
  // draw(item) gives the element of an item; sizeOf(item) a guess of its height.
  constructor(scroller, box, draw, sizeOf) {
    Object.assign(this, { scroller, box, draw, sizeOf, items: [], heights: [], shown: new Map() });
    this.top = document.createElement("div");
    this.bottom = document.createElement("div");
    // The item at the upper edge of the window, and how far it has gone beyond.
    this.anchor = { at: 0, offset: 0 };
    let width = 0;
    scroller.addEventListener("scroll", () => { this.readAnchor(); this.place(); });
    new ResizeObserver(() => {
      if (scroller.clientWidth !== width) { width = scroller.clientWidth; this.guess(); }
      this.place();
    }).observe(scroller);
  }

  setItems(items, at = 0, offset = 0) {
    this.items = items;
    this.box.replaceChildren(this.top, this.bottom);
    this.shown.clear();
    this.guess();
    this.anchor = { at: Math.max(0, Math.min(at, items.length - 1)), offset };
    this.place();
  }

  guess() { this.heights = this.items.map((item) => this.sizeOf(item)); }

  yOf(at) {
    let y = 0;
    for (let i = 0; i < at; i++) y += this.heights[i];
    return y;
  }

  readAnchor() {
    // The browser rounds where it scrolls to.
    const to = this.scroller.scrollTop + 1;
    let y = 0, at = 0;
    while (at < this.items.length - 1 && y + this.heights[at] <= to) y += this.heights[at++];
    this.anchor = { at, offset: Math.max(0, to - 1 - y) };
  }

  go(at) {
    this.anchor = { at, offset: 0 };
    this.place();
  }

  // Elements for all items within one window's height of the window. Their real heights replace
  // the guesses, and the anchor stays where it is.
  place() {
    if (!this.items.length) return;
    const view = this.scroller.clientHeight || 600;
    for (let round = 0; round < 6; round++) {
      const target = this.yOf(this.anchor.at) + this.anchor.offset;
      let first = 0, y = 0;
      while (first < this.items.length - 1 && y + this.heights[first] < target - view) y += this.heights[first++];
      this.top.style.height = `${y}px`;
      let last = first;
      while (last < this.items.length && y < target + 2 * view) y += this.heights[last++];
      let rest = 0;
      for (let i = last; i < this.items.length; i++) rest += this.heights[i];
      this.bottom.style.height = `${rest}px`;
      this.fill(first, last);
      if (!this.measure()) break;
    }
    const target = this.yOf(this.anchor.at) + this.anchor.offset;
    if (Math.abs(this.scroller.scrollTop - target) > 1) this.scroller.scrollTop = target;
  }

  fill(first, last) {
    for (const [at, element] of this.shown) {
      if (at < first || at >= last) { element.remove(); this.shown.delete(at); }
    }
    let after = this.bottom;
    for (let at = last - 1; at >= first; at--) {
      let element = this.shown.get(at);
      if (!element) {
        element = this.draw(this.items[at]);
        this.shown.set(at, element);
        this.box.insertBefore(element, after);
      }
      after = element;
    }
  }

  measure() {
    let hasChanged = false;
    for (const [at, element] of this.shown) {
      const height = element.getBoundingClientRect().height;
      if (Math.abs(height - this.heights[at]) > 0.5) { this.heights[at] = height; hasChanged = true; }
    }
    return hasChanged;
  }
}
