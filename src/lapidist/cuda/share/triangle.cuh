// Tiles of a square matrix D that meet one of its triangles, with the diagonal. The host has the same functions
// (lapidist/schedule/triangle.py).
//
// D is counted in squares of `down` x `across` tiles, whose sides are equally long: squares of one line are
// those from the edge to the diagonal. Bands of `band` lines are for the L2, here of two:
//
//   0                    the first columns of a band have all of its lines,
//   1  2                 each of the last ones a line fewer
//   3  5  7
//   4  6  8  9
//
// The last line may have fewer rows of tiles, and its last square fewer columns.
#pragma once

// Squares in the lines before this one.
__device__ __forceinline__ int squares_before(int line) { return line * (line + 1) / 2; }

// The line of a square, if they are counted line by line. Its band is the same.
__device__ __forceinline__ int line_of_square(int square) {
  int line = static_cast<int>((sqrtf(8.0f * square + 1.0f) - 1.0f) * 0.5f);
  while (squares_before(line) > square) --line;  // the root is rounded
  while (squares_before(line + 1) <= square) ++line;
  return line;
}

struct Triangle {
  int down, across, band;  // band: lines of squares

  __device__ __forceinline__ int count(int tiles_m, int tiles_n) const {
    const int lines = (tiles_m + down - 1) / down, last = lines - 1, wide = lines * across;
    const int height = tiles_m - last * down;
    return squares_before(last) * down * across + height * (wide < tiles_n ? wide : tiles_n);
  }

  __device__ __forceinline__ void place(int index, int tiles_m, int& row, int& column) const {
    const int of_square = down * across, first = line_of_square(index / of_square) / band * band;
    int rest = index - squares_before(first) * of_square, height = tiles_m - first * down;
    if (height > band * down) height = band * down;
    row = first * down, column = 0;
    // the columns that all lines of the band have; then those of one square after another
    for (int wide = (first + 1) * across; rest >= wide * height; wide = across)
      rest -= wide * height, column += wide, row += down, height -= down;
    const int step = rest / height;
    row += rest - step * height, column += step;
  }
};
