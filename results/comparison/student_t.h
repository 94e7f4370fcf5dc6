#pragma once

/// Purpose: Student's t distribution with any positive number of degrees of freedom.
///
/// Usage:  const double p = student_t_two_sided(estimate / standard_error, freedom);

namespace stepscope::results {

/// The probability of a value at least as far from 0 as `t`; from 0 to 1.
double student_t_two_sided(double t, double freedom);

/// The value that is exceeded, in either direction together, with probability `two_sided`, which
/// lies between 0 and 1.
double student_t_critical(double two_sided, double freedom);

}  // namespace stepscope::results
