//! The server as its callers see it, with environments of this host.

mod calls;
mod episodes;
mod hardships;
mod leaving;
mod stage;
