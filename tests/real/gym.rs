//! `rolltap env` on real containers.

mod faults;
mod programs;
mod server;
