// What the map is drawn from, fetched once: places and labels as numbers, ids in pieces, filters as bits, thumbnails.

import { ask, askBytes, askPatiently } from "./api.js";

const PIECE = 1000; // ids at a time
const THUMBNAILS = 600; // kept

let kept = null;

export async function mapGeometry(info, working, alive) {
  if (kept?.generation === info.generation) return kept;
  const head = await askPatiently("/map", {}, working, alive);
  if (head === null) return null;
  const bytes = await askBytes("/map/points", { generation: head.generation });
  const many = bytes.byteLength / 12;
  const labels = new Uint32Array(bytes, 8 * many, many);
  const counts = new Uint32Array(head.names.length);
  for (let place = 0; place < many; place += 1) if (labels[place] < counts.length) counts[labels[place]] += 1;
  kept = { ...head, many, points: new Float32Array(bytes, 0, 2 * many), labels, counts, ids: new Map(), images: new Map() };
  kept.middles = middles(kept);
  kept.reach = reach(kept.points);
  return kept;
}

// How far the points go from the middle, across and down; a little where they all lie in one place.
function reach(points) {
  let across = 0.05, down = 0.05;
  for (let place = 0; place < points.length; place += 2) {
    across = Math.max(across, Math.abs(points[place]));
    down = Math.max(down, Math.abs(points[place + 1]));
  }
  return [across, down];
}

// A place for each label's name: the middle of its points, in both directions.
function middles(geometry) {
  const lists = Array.from({ length: geometry.counts.length }, (_, label) => ({ x: new Float32Array(geometry.counts[label]), y: new Float32Array(geometry.counts[label]), filled: 0 }));
  for (let place = 0; place < geometry.many; place += 1) {
    const list = lists[geometry.labels[place]];
    if (!list) continue;
    list.x[list.filled] = geometry.points[2 * place];
    list.y[list.filled] = geometry.points[2 * place + 1];
    list.filled += 1;
  }
  const middle = (values) => values.sort()[values.length >> 1] ?? 0;
  return lists.map((list) => [middle(list.x), middle(list.y)]);
}

export async function mapMask(geometry, where) {
  if (!where) return null;
  const bits = new Uint8Array(await askBytes("/map/mask", { where, generation: geometry.generation }));
  const shown = new Uint8Array(geometry.many);
  for (let place = 0; place < geometry.many; place += 1) shown[place] = (bits[place >> 3] >> (7 - (place & 7))) & 1;
  return shown;
}

export function idOf(geometry, place) {
  const piece = Math.floor(place / PIECE);
  if (!geometry.ids.has(piece)) {
    geometry.ids.set(piece, ask("/map/ids", { from: piece * PIECE, to: (piece + 1) * PIECE, generation: geometry.generation }));
  }
  return geometry.ids.get(piece).then((reply) => reply.ids[place - piece * PIECE]);
}

export const imageAddress = (id, size) => `/items/${encodeURIComponent(id)}/image?size=${size}`;

// A thumbnail that is there, or null and a call of `arrived` once it is.
export function thumbnail(geometry, place, arrived) {
  const known = geometry.images.get(place);
  if (known !== undefined) return known?.complete && known.naturalWidth ? known : null;
  geometry.images.set(place, null);
  if (geometry.images.size > THUMBNAILS) geometry.images.delete(geometry.images.keys().next().value);
  idOf(geometry, place).then((id) => {
    const image = new Image();
    image.onload = arrived;
    image.src = imageAddress(id, 96);
    geometry.images.set(place, image);
  }, () => {});
  return null;
}
