// Free rectangles on a drawing: what is occupied is counted on a coarse grid, so that each test takes four additions.

const DIRECTIONS = 16;

export class FreeRoom {
  constructor(width, height, cell) {
    this.cell = cell;
    this.width = width;
    this.height = height;
    this.columns = Math.ceil(width / cell);
    this.rows = Math.ceil(height / cell);
    this.taken = new Uint8Array(this.columns * this.rows);
    this.sums = new Uint32Array((this.columns + 1) * (this.rows + 1)); // of all cells above and to the left
    this.placed = [];
  }

  occupy(left, top, right, bottom) {
    const lastColumn = Math.min(this.columns - 1, Math.floor(right / this.cell));
    const lastRow = Math.min(this.rows - 1, Math.floor(bottom / this.cell));
    for (let row = Math.max(0, Math.floor(top / this.cell)); row <= lastRow; row += 1) {
      for (let column = Math.max(0, Math.floor(left / this.cell)); column <= lastColumn; column += 1) {
        this.taken[row * this.columns + column] = 1;
      }
    }
  }

  // Call once after all `occupy`.
  count() {
    const wide = this.columns + 1;
    for (let row = 0; row < this.rows; row += 1) {
      let sum = 0;
      for (let column = 0; column < this.columns; column += 1) {
        sum += this.taken[row * this.columns + column];
        this.sums[(row + 1) * wide + column + 1] = this.sums[row * wide + column + 1] + sum;
      }
    }
  }

  isFree(left, top, right, bottom) {
    if (left < 0 || top < 0 || right > this.width || bottom > this.height) return false;
    if (this.placed.some((box) => left < box[2] && right > box[0] && top < box[3] && bottom > box[1])) return false;
    const wide = this.columns + 1;
    const [firstColumn, firstRow] = [Math.floor(left / this.cell), Math.floor(top / this.cell)];
    const [endColumn, endRow] = [Math.min(this.columns, Math.ceil(right / this.cell)), Math.min(this.rows, Math.ceil(bottom / this.cell))];
    return this.sums[endRow * wide + endColumn] - this.sums[firstRow * wide + endColumn]
      - this.sums[endRow * wide + firstColumn] + this.sums[firstRow * wide + firstColumn] === 0;
  }

  // The free rectangle nearest to a position, as left, top, right and bottom, which is then occupied; null if there is
  // none within reach.
  nearest(x, y, width, height, reach) {
    for (let distance = 0; distance <= reach; distance += 2 * this.cell) {
      for (let turn = 0; turn < (distance ? DIRECTIONS : 1); turn += 1) {
        const angle = -Math.PI / 2 + (2 * Math.PI * (turn % 2 ? -(turn + 1) / 2 : turn / 2)) / DIRECTIONS; // above first
        // Names are wider than high: sideways they move further.
        const [middleX, middleY] = [x + distance * Math.cos(angle) * 1.6, y + distance * Math.sin(angle)];
        const box = [middleX - width / 2, middleY - height / 2, middleX + width / 2, middleY + height / 2];
        if (!this.isFree(...box)) continue;
        this.placed.push(box);
        return box;
      }
    }
    return null;
  }
}
