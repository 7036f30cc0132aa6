//! Requests, phases, locations, variables, filters, output.
