// Fingers, mouse and keys on the map.

const STEP = 60; // pixels that an arrow moves
const CLICK = 5; // pixels that a pointer may move in a click

export function gestures(screen, { lasso, choose, click, hover, centre }) {
  const { canvas } = screen;
  const pointers = new Map();
  let drawing = false, moved = 0, spread = 0;

  const placeOf = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const lassoing = () => lasso.getAttribute("aria-pressed") === "true";
  lasso.addEventListener("click", () => {
    lasso.setAttribute("aria-pressed", String(!lassoing()));
    canvas.classList.toggle("lassoing", lassoing());
  });

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, placeOf(event));
    moved = 0;
    drawing = pointers.size === 1 && (lassoing() || event.shiftKey);
    if (drawing) screen.line = [...screen.toMap(...placeOf(event))];
    if (pointers.size === 2) spread = distance();
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = placeOf(event);
    const before = pointers.get(event.pointerId);
    if (!before) { hover(x, y); return; }
    hover(null);
    pointers.set(event.pointerId, [x, y]);
    moved += Math.hypot(x - before[0], y - before[1]);
    if (pointers.size === 2) {
      const now = distance();
      const [[ax, ay], [bx, by]] = [...pointers.values()];
      if (spread > 0 && now > 0) screen.zoom(now / spread, (ax + bx) / 2, (ay + by) / 2);
      screen.pan((x - before[0]) / 2, (y - before[1]) / 2);
      spread = now;
    } else if (drawing) {
      screen.line.push(...screen.toMap(x, y));
      screen.redraw();
    } else screen.pan(x - before[0], y - before[1]);
  });
  const up = (event) => {
    if (!pointers.delete(event.pointerId) || pointers.size) return;
    const [x, y] = placeOf(event);
    if (drawing && screen.line.length >= 6) choose(screen.inside(screen.line), screen.line);
    else if (moved < CLICK && event.type === "pointerup") click(screen.placeAt(x, y));
    drawing = false;
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 16 : 1);
    screen.zoom(Math.exp(-0.0018 * Math.max(-300, Math.min(300, pixels))), ...placeOf(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => screen.pan(STEP, 0), ArrowRight: () => screen.pan(-STEP, 0),
      ArrowUp: () => screen.pan(0, STEP), ArrowDown: () => screen.pan(0, -STEP),
      "+": () => screen.zoom(1.5), "=": () => screen.zoom(1.5), "-": () => screen.zoom(1 / 1.5), "0": () => screen.whereAll(),
      s: () => choose(screen.inView()), Enter: centre, Escape: () => choose(null),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  function distance() {
    const [[ax, ay], [bx, by]] = [...pointers.values()];
    return Math.hypot(ax - bx, ay - by);
  }
}
