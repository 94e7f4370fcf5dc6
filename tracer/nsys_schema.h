#pragma once

/// Purpose: the tables of nsys' SQLite export that our files have, as SQL.
///
/// Usage:  sqlite3_exec(connection, kNsysSchema, ...);
///
/// Caveats: columns of schema 3.7.2 (nsys 2023.4), which newer nsys reads, and
/// TARGET_INFO_CUDA_DEVICE of 3.25, from which other readers take a device's name. Reports of nsys
/// leave rows out without a word where an ENUM_ table lacks a number, or where one of the ids is
/// NULL.

namespace stepscope::tracer {

extern const char* const kNsysSchema;

/// The tables that we add (see nsys_tables.h).
extern const char* const kOwnSchema;

}  // namespace stepscope::tracer
