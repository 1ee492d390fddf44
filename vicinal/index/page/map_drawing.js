// Points into a pixel buffer: no GPU is needed, and a hundred thousand points take a few milliseconds.

// A soft disc: which pixels around a point, and how much of the point's colour each of them takes (of 256).
function disc(radius) {
  const offsets = [];
  const reach = Math.ceil(radius + 0.5);
  for (let y = -reach; y <= reach; y += 1) {
    for (let x = -reach; x <= reach; x += 1) {
      const cover = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(x, y)));
      if (cover > 0.02) offsets.push([x, y, Math.round(230 * cover)]);
    }
  }
  return offsets;
}

// view: centre in map units and pixels per unit. shown: one byte per point, 0 dims it; null shows all.
export function drawPoints(pixels, width, height, points, labels, colours, view, radius, background, faint, shown) {
  pixels.fill(background);
  const offsets = disc(radius);
  const reach = Math.ceil(radius + 0.5);
  const shiftX = width / 2 - view.x * view.scale, shiftY = height / 2 - view.y * view.scale;
  const many = labels.length;
  const last = colours.length - 1;
  let visible = 0;
  for (let turn = shown ? 0 : 1; turn < 2; turn += 1) { // what the filter leaves out lies below
    for (let place = 0; place < many; place += 1) {
      if (shown && shown[place] !== turn) continue;
      const x = (points[2 * place] * view.scale + shiftX) | 0, y = (points[2 * place + 1] * view.scale + shiftY) | 0;
      if (x < reach || y < reach || x >= width - reach || y >= height - reach) continue;
      if (turn === 1) visible += 1;
      const colour = turn === 0 ? faint : colours[labels[place] < last ? labels[place] : last];
      const redBlue = colour & 0xff00ff, green = colour & 0x00ff00;
      const start = y * width + x;
      for (let part = 0; part < offsets.length; part += 1) {
        const [right, down, cover] = offsets[part];
        const at = start + down * width + right;
        const under = pixels[at];
        const underRedBlue = under & 0xff00ff, underGreen = under & 0x00ff00;
        pixels[at] = 0xff000000
          | ((underRedBlue + (((redBlue - underRedBlue) * cover) >> 8)) & 0xff00ff)
          | ((underGreen + (((green - underGreen) * cover) >> 8)) & 0x00ff00);
      }
    }
  }
  return visible;
}

export function visiblePlaces(points, view, width, height, shown, most) {
  const halfX = width / 2 / view.scale, halfY = height / 2 / view.scale;
  const found = [];
  for (let place = 0; place < points.length / 2; place += 1) {
    if (shown && !shown[place]) continue;
    if (Math.abs(points[2 * place] - view.x) > halfX || Math.abs(points[2 * place + 1] - view.y) > halfY) continue;
    found.push(place);
    if (found.length > most) return null;
  }
  return found;
}

export function nearestPlace(points, x, y, within, shown) {
  let best = within * within, nearest = -1;
  for (let place = 0; place < points.length / 2; place += 1) {
    if (shown && !shown[place]) continue;
    const right = points[2 * place] - x, down = points[2 * place + 1] - y;
    const square = right * right + down * down;
    if (square < best) { best = square; nearest = place; }
  }
  return nearest;
}

// Which points lie inside a closed line (of map units, x and y in turn), by the parity of its crossings.
export function placesInside(points, line, shown) {
  let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
  for (let corner = 0; corner < line.length; corner += 2) {
    left = Math.min(left, line[corner]); right = Math.max(right, line[corner]);
    top = Math.min(top, line[corner + 1]); bottom = Math.max(bottom, line[corner + 1]);
  }
  const found = [];
  for (let place = 0; place < points.length / 2; place += 1) {
    if (shown && !shown[place]) continue;
    const x = points[2 * place], y = points[2 * place + 1];
    if (x < left || x > right || y < top || y > bottom) continue;
    let inside = false;
    for (let corner = 0, before = line.length - 2; corner < line.length; before = corner, corner += 2) {
      const above = line[corner + 1] > y, aboveBefore = line[before + 1] > y;
      if (above !== aboveBefore
        && x < ((line[before] - line[corner]) * (y - line[corner + 1])) / (line[before + 1] - line[corner + 1]) + line[corner]) {
        inside = !inside;
      }
    }
    if (inside) found.push(place);
  }
  return found;
}

// Colours that differ from one label to the next, light on dark and dark on light; the last one is for no label.
export function labelColours(many, dark) {
  const colours = new Uint32Array(many + 1);
  for (let label = 0; label < many; label += 1) {
    const hue = (label * 137.508 + 212) % 360; // the golden angle: labels that follow each other look different
    const round = Math.floor(label / 24) % 3;
    colours[label] = packed(hue, dark ? 0.62 : 0.68, dark ? 0.66 - 0.08 * round : 0.44 + 0.07 * round);
  }
  colours[many] = dark ? rgb(128, 126, 120) : rgb(150, 148, 142);
  return colours;
}

export const rgb = (red, green, blue) => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
export const cssColour = (colour) => `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;

function packed(hue, saturation, lightness) {
  const strength = saturation * Math.min(lightness, 1 - lightness);
  const part = (shift) => {
    const turn = (shift + hue / 30) % 12;
    return Math.round(255 * (lightness - strength * Math.max(-1, Math.min(turn - 3, 9 - turn, 1))));
  };
  return rgb(part(0), part(8), part(4));
}
