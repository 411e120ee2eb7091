//! Tests of the server through its API, with environments of this host.

mod calls;
mod episodes;
mod faults;
mod harness;
mod leaving;
