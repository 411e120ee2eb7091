//! `rolltap env` on real containers.

mod hardships;
mod programs;
mod server;
