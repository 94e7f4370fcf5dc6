#pragma once

/// Purpose: sorting what consists of a few sorted runs, as a trace does that was read table by
/// table, with little memory beside it.
///
/// Usage:  sort_runs(events.begin(), events.end(), less, 1 << 20);
///
/// Caveats: stable for up to 64 runs; what has more is given to std::sort, which is not. Where the
/// order of equals matters, `less` must be a total order.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace stepscope::tracer {
namespace detail {

/// Merges the sorted [first, middle) and [middle, last); `buffer` holds at most `room` elements.
template <typename Iterator, typename Less, typename Buffer>
void merge_two(Iterator first, Iterator middle, Iterator last, Less less, Buffer& buffer,
               std::ptrdiff_t room) {
  const std::ptrdiff_t left = middle - first;
  const std::ptrdiff_t right = last - middle;
  if (left == 0 || right == 0 || !less(*middle, *std::prev(middle))) return;
  if (left <= right && left <= room) {
    buffer.assign(first, middle);
    auto from = buffer.begin();
    while (from != buffer.end() && middle != last) {
      *first++ = less(*middle, *from) ? *middle++ : *from++;
    }
    std::copy(from, buffer.end(), first);
  } else if (right <= room) {
    buffer.assign(middle, last);
    auto from = buffer.end();
    while (from != buffer.begin() && middle != first) {
      *--last = less(*std::prev(from), *std::prev(middle)) ? *--middle : *--from;
    }
    std::copy_backward(buffer.begin(), from, last);
  } else {
    // Both halves become problems of their own once the middle parts have changed places.
    Iterator cut_left = first + left / 2;
    Iterator cut_right = middle + right / 2;
    if (left > right) {
      cut_right = std::lower_bound(middle, last, *cut_left, less);
    } else {
      cut_left = std::upper_bound(first, middle, *cut_right, less);
    }
    const Iterator between = std::rotate(cut_left, middle, cut_right);
    merge_two(first, cut_left, between, less, buffer, room);
    merge_two(between, cut_right, last, less, buffer, room);
  }
}

}  // namespace detail

/// Sorts [first, last); memory for at most `room` elements is used, 1 or more.
template <typename Iterator, typename Less>
void sort_runs(Iterator first, Iterator last, Less less, std::ptrdiff_t room) {
  constexpr std::size_t kMostRuns = 64;
  std::vector<Iterator> borders = {first};
  for (Iterator at = first; at != last && borders.size() <= kMostRuns;) {
    at = std::is_sorted_until(at, last, less);
    borders.push_back(at);
  }
  if (borders.back() != last) {
    std::sort(first, last, less);
    return;
  }
  std::vector<typename std::iterator_traits<Iterator>::value_type> buffer;
  while (borders.size() > 2) {
    std::vector<Iterator> merged = {first};
    for (std::size_t i = 0; i + 2 < borders.size(); i += 2) {
      detail::merge_two(borders[i], borders[i + 1], borders[i + 2], less, buffer, room);
      merged.push_back(borders[i + 2]);
    }
    if (merged.back() != last) merged.push_back(last);
    borders = std::move(merged);
  }
}

}  // namespace stepscope::tracer
