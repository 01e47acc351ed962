// Small pictures of the server's load: lines over time, a bar of shares, a strip of requests. Each
// is one SVG image whose label says in words what it shows.

import {make, makeSvg} from './dom.mjs';

const WIDTH = 180, HEIGHT = 40;

function image(className, height) {
  return makeSvg('svg', {class: className, viewBox: `0 0 ${WIDTH} ${height}`, role: 'img',
                         preserveAspectRatio: 'none'});
}

// A figure: title and values above, picture below. `picture.node` is the SVG. Each of the `marks`
// is the class of a key that stands before a value: the look of its line or square.
export function figure(title, picture, marks = []) {
  const values = make('span', {class: 'values'});
  // The axis' upper end; the picture's label says what matters of it.
  const scale = make('span', {class: 'scale', 'aria-hidden': 'true'});
  const node = make('figure', {class: 'figure'},
      make('figcaption', {}, make('span', {class: 'name'}, title), values),
      make('div', {class: 'plot'}, picture.node, scale));
  return {
    node,
    picture,
    setValues: (...texts) => values.replaceChildren(...texts.map((text, at) => make('span', {},
        marks[at] === undefined ? null : make('span', {class: `key ${marks[at]}`}), text))),
    setScale: (text) => {
      scale.textContent = text;
    },
  };
}

// The upper end of an axis: 1, 2 or 5 times a power of ten.
export function niceMax(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((one) => one >= most * 0.999);
}

// Lines over time, newest at the right. `series`: [{values, className}] oldest first, null = a gap;
// the first one's area is filled.
export class Lines {
  constructor(count, points) {
    this.points = points;
    this.node = image('lines', HEIGHT);
    this.area = makeSvg('path', {class: 'area'});
    this.paths = [];
    const axis = `M0 ${HEIGHT - 0.5}H${WIDTH}M0 0.5H${WIDTH}`;
    this.node.append(makeSvg('path', {class: 'axis', d: axis}), this.area);
    for (let i = 0; i < count; ++i) this.paths.push(makeSvg('path', {class: `line line-${i}`}));
    this.node.append(...this.paths);
  }

  show(series, max, label) {
    const y = (value) => (HEIGHT - 1 - Math.min(1, value / max) * (HEIGHT - 3)).toFixed(1);
    series.forEach((values, at) => {
      const x = (index) =>
          (WIDTH - (values.length - 1 - index) * WIDTH / (this.points - 1)).toFixed(1);
      let line = '', area = '', from = null;
      const close = (index) => {
        if (from !== null) area += `L${x(index)} ${HEIGHT}L${from} ${HEIGHT}Z`;
        from = null;
      };
      values.forEach((value, index) => {
        if (value === null) {
          close(index - 1);
          return;
        }
        const piece = `${from === null ? 'M' : 'L'}${x(index)} ${y(value)}`;
        from ??= x(index);
        line += piece;
        area += piece;
      });
      close(values.length - 1);
      this.paths[at].setAttribute('d', line);
      if (at === 0) this.area.setAttribute('d', area);
    });
    this.node.setAttribute('aria-label', label);
  }
}

// Shares of a whole, side by side.
export class Shares {
  constructor(classes) {
    this.node = image('shares', 10);
    this.bars = classes.map((name) => makeSvg('rect', {class: name, y: 0, height: 10}));
    this.node.append(makeSvg('rect', {class: 'rest', width: WIDTH, height: 10}), ...this.bars);
  }

  show(values, label) {
    const total = values.reduce((sum, value) => sum + value, 0);
    let from = 0;
    values.forEach((value, at) => {
      const width = total > 0 ? WIDTH * value / total : 0;
      // What is there is seen, however little it is.
      const seen = value > 0 ? Math.max(width, 1.5) : 0;
      this.bars[at].setAttribute('x', Math.min(from, WIDTH - seen).toFixed(2));
      this.bars[at].setAttribute('width', seen.toFixed(2));
      from += width;
    });
    this.node.setAttribute('aria-label', label);
  }
}

// A square for each request: filled ones run, hollow ones wait. Two rows of STRIP; what is more
// stands as a number in the values.
export const STRIP = 24;
export class Strip {
  constructor() {
    this.node = makeSvg('svg', {class: 'strip', viewBox: `0 0 ${WIDTH} 15`, role: 'img'});
    this.squares = [];
    const step = WIDTH / STRIP;
    for (let at = 0; at < 2 * STRIP; ++at) {
      this.squares.push(makeSvg('rect', {
        x: ((at % STRIP) * step + 0.5).toFixed(2), y: at < STRIP ? 0.5 : 8.5,
        width: (step - 1.5).toFixed(2), height: 6, rx: 1, class: 'none',
      }));
    }
    this.node.append(...this.squares);
  }

  show(running, waiting, label) {
    this.squares.forEach((square, at) => {
      const name = at < running ? 'runs' : at < running + waiting ? 'waits' : 'none';
      if (square.getAttribute('class') !== name) square.setAttribute('class', name);
    });
    this.node.setAttribute('aria-label', label);
  }
}
