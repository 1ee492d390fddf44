// The map on the screen: points, pictures, names and the lasso, drawn when something has changed.

import { cssColour, drawPoints, labelColours, nearestPlace, placesInside, rgb, visiblePlaces } from "./map_drawing.js";
import { counted } from "./elements.js";
import { thumbnail } from "./map_geometry.js";
import { FreeRoom } from "./map_room.js";

const NEAR = 260; // most points in view for which pictures are drawn
const CROWDED = 30000; // points from which on there is no room between them: names are drawn over them
const REACH = 130; // largest distance of a name from the middle of its label, in pixels of the page
let view = null; // kept between visits

const darkScheme = () => matchMedia("(prefers-color-scheme: dark)").matches;

export class MapScreen {
  constructor(canvas, geometry, info, note) {
    Object.assign(this, { canvas, geometry, info, note, shown: null, only: null, line: null, marked: -1, waiting: false });
    this.context = canvas.getContext("2d", { alpha: false });
    view ??= { x: 0, y: 0, scale: 0 };
    this.recolour();
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.recolour(); this.redraw(); });
    this.resize();
  }

  recolour() {
    const dark = darkScheme();
    this.colours = labelColours(this.geometry.counts.length, dark);
    [this.background, this.faint] = dark ? [rgb(28, 28, 26), rgb(58, 57, 54)] : [rgb(255, 255, 253), rgb(226, 224, 218)];
    [this.ink, this.halo] = dark ? ["#f1efe9", "#1c1c1a"] : ["#1b1b1a", "#fffffd"];
  }

  resize() {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    this.ratio = ratio;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    const [across, down] = this.geometry.reach;
    this.whole = 0.46 * Math.min(this.canvas.width / across, this.canvas.height / down);
    if (!view.scale) view.scale = this.whole;
    this.redraw();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  mask() {
    // The label selected in the legend, on top of the filter.
    if (this.only === null) return this.shown;
    if (this.onlyMask?.label !== this.only || this.onlyMask.under !== this.shown) {
      const { labels } = this.geometry;
      const mask = new Uint8Array(labels.length);
      for (let place = 0; place < mask.length; place += 1) mask[place] = labels[place] === this.only && (!this.shown || this.shown[place]) ? 1 : 0;
      this.onlyMask = { label: this.only, under: this.shown, mask };
    }
    return this.onlyMask.mask;
  }

  draw() {
    const begun = performance.now();
    const { canvas, context, geometry } = this;
    if (!canvas.isConnected || !this.pixels) return;
    const shown = this.mask();
    const nearer = Math.log2(view.scale / this.whole);
    const room = Math.min(1, Math.min(canvas.width, canvas.height) / this.ratio / 600); // less on a phone
    const crowd = room * (geometry.many > 30000 ? 0.8 : geometry.many > 5000 ? 1.2 : geometry.many > 1000 ? 2 : 4);
    const radius = this.ratio * Math.min(5, Math.max(crowd, crowd + 0.6 * nearer));
    drawPoints(this.pixels, canvas.width, canvas.height, geometry.points, geometry.labels, this.colours, view, radius, this.background, this.faint, shown);
    context.putImageData(this.image, 0, 0);
    const near = visiblePlaces(geometry.points, view, canvas.width, canvas.height, shown, NEAR);
    const pictures = near && this.info.has_images && (nearer > 0.5 || geometry.many <= NEAR) ? this.drawPictures(near) : [];
    this.drawNames(pictures);
    this.drawMarked();
    this.drawLine();
    canvas.dataset.frame = (performance.now() - begun).toFixed(1);
    canvas.dataset.pictures = pictures.length;
  }

  at(place) {
    const { points } = this.geometry;
    return this.onScreen(points[2 * place], points[2 * place + 1]);
  }

  drawPictures(places) {
    const size = Math.round(44 * this.ratio), taken = new Set();
    const boxes = [];
    for (const place of places) {
      const [x, y] = this.at(place);
      const cell = `${Math.round(x / size / 0.7)} ${Math.round(y / size / 0.7)}`;
      if (taken.has(cell)) continue; // its point is drawn
      taken.add(cell);
      const image = thumbnail(this.geometry, place, () => this.redraw());
      if (!image) continue;
      const scale = size / Math.max(image.naturalWidth, image.naturalHeight);
      const [wide, high] = [image.naturalWidth * scale, image.naturalHeight * scale];
      this.context.fillStyle = cssColour(this.colours[Math.min(this.geometry.labels[place], this.colours.length - 1)]);
      this.context.fillRect(x - wide / 2 - 2, y - high / 2 - 2, wide + 4, high + 4);
      this.context.drawImage(image, x - wide / 2, y - high / 2, wide, high);
      boxes.push([x - wide / 2 - 2, y - high / 2 - 2, x + wide / 2 + 2, y + high / 2 + 2]);
    }
    return boxes;
  }

  // Names are placed next to the middle of their label, where they cover neither points nor pictures.
  drawNames(boxes) {
    const { geometry, context, canvas, ratio } = this;
    const order = (this.order ??= [...geometry.counts.keys()].sort((a, b) => geometry.counts[b] - geometry.counts[a]));
    context.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.lineJoin = "round";
    const inView = (this.only === null ? order : [this.only])
      .map((label) => [label, ...this.onScreen(...geometry.middles[label])])
      .filter(([, x, y]) => x >= 0 && y >= 0 && x < canvas.width && y < canvas.height);
    const most = Math.round((canvas.width * canvas.height) / ratio ** 2 / 15000); // names, so that points show between them
    const room = new FreeRoom(canvas.width, canvas.height, 3 * ratio);
    if (geometry.many <= CROWDED) this.occupy(room, boxes);
    const names = [];
    for (const [label, x, y] of inView.slice(0, most)) {
      const words = String(geometry.names[label]).slice(0, 28);
      const box = room.nearest(x, y, context.measureText(words).width + 6 * ratio, 16 * ratio, REACH * ratio);
      if (box) names.push([words, x, y, box]);
    }
    for (const [, x, y, box] of names) this.drawLead(x, y, box);
    for (const [words, , , box] of names) this.drawName(words, box);
    const hidden = inView.length - names.length;
    this.note.textContent = hidden ? `${counted(hidden, "label")} of ${inView.length} in view ${hidden === 1 ? "is" : "are"} not named, for lack of space. Zoom in to see more names.` : "";
  }

  onScreen(x, y) {
    return [(x - view.x) * view.scale + this.canvas.width / 2, (y - view.y) * view.scale + this.canvas.height / 2];
  }

  occupy(room, boxes) {
    const { geometry, ratio } = this;
    const radius = 4 * ratio;
    for (let place = 0; place < geometry.many; place += 1) {
      const [x, y] = this.at(place);
      room.occupy(x - radius, y - radius, x + radius, y + radius);
    }
    for (const box of boxes) room.occupy(...box);
    room.count();
  }

  // A line from the middle of a label to its name, if that is far away.
  drawLead(x, y, [left, top, right, bottom]) {
    const { context, ratio } = this;
    const [endX, endY] = [Math.min(Math.max(x, left), right), Math.min(Math.max(y, top), bottom)];
    if (Math.hypot(x - endX, y - endY) < 20 * ratio) return;
    context.strokeStyle = this.ink;
    context.lineWidth = ratio;
    context.globalAlpha = 0.5;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(endX, endY);
    context.stroke();
    context.globalAlpha = 1;
  }

  drawName(words, [left, top, right, bottom]) {
    const { context, ratio } = this;
    const [x, y] = [(left + right) / 2, (top + bottom) / 2];
    context.lineWidth = 3.5 * ratio;
    context.strokeStyle = this.halo;
    context.strokeText(words, x, y + 4 * ratio);
    context.fillStyle = this.ink;
    context.fillText(words, x, y + 4 * ratio);
  }

  drawMarked() {
    if (this.marked < 0) return;
    const [x, y] = this.at(this.marked);
    this.context.strokeStyle = this.ink;
    this.context.lineWidth = 2.5 * this.ratio;
    this.context.beginPath();
    this.context.arc(x, y, 11 * this.ratio, 0, 2 * Math.PI);
    this.context.stroke();
  }

  drawLine() {
    if (!this.line || this.line.length < 4) return;
    const { context, canvas } = this;
    context.beginPath();
    for (let corner = 0; corner < this.line.length; corner += 2) {
      context.lineTo((this.line[corner] - view.x) * view.scale + canvas.width / 2, (this.line[corner + 1] - view.y) * view.scale + canvas.height / 2);
    }
    context.closePath();
    context.strokeStyle = this.ink;
    context.lineWidth = 1.5 * this.ratio;
    context.setLineDash([6 * this.ratio, 4 * this.ratio]);
    context.stroke();
    context.setLineDash([]);
  }

  // From positions on the screen, in pixels of the page, to positions on the map.
  toMap(x, y) {
    return [(x * this.ratio - this.canvas.width / 2) / view.scale + view.x, (y * this.ratio - this.canvas.height / 2) / view.scale + view.y];
  }

  pan(right, down) {
    view.x -= (right * this.ratio) / view.scale;
    view.y -= (down * this.ratio) / view.scale;
    this.redraw();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const [mapX, mapY] = this.toMap(x, y);
    view.scale = Math.min(4000 * this.whole, Math.max(0.5 * this.whole, view.scale * factor));
    view.x = mapX - (x * this.ratio - this.canvas.width / 2) / view.scale;
    view.y = mapY - (y * this.ratio - this.canvas.height / 2) / view.scale;
    this.redraw();
  }

  whereAll() {
    Object.assign(view, { x: 0, y: 0, scale: this.whole });
    this.redraw();
  }

  mark(place) {
    const { points } = this.geometry;
    this.marked = place;
    Object.assign(view, { x: points[2 * place], y: points[2 * place + 1], scale: 4 * this.whole });
    this.redraw();
  }

  placeAt(x, y, within = 14) {
    return nearestPlace(this.geometry.points, ...this.toMap(x, y), (within * this.ratio) / view.scale, this.mask());
  }

  inside(line) {
    return placesInside(this.geometry.points, line, this.mask());
  }

  inView() {
    return visiblePlaces(this.geometry.points, view, this.canvas.width, this.canvas.height, this.mask(), Infinity);
  }
}
