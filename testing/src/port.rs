//! Ports for programs that must be given a number.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port of the range. Linux gives connections, and listeners at port 0, ports from 32768 on. A port below stays
/// free between this call and the start of the program.
const FIRST: u16 = 18_000;
const COUNT: u16 = 14_000;
/// The distance between the first ports of two processes with neighbouring ids.
const PER_PROCESS: u32 = 16;

/// Returns a port of loopback on which nothing listens. Calls in this process, and in tests beside it, get other ports.
pub fn free_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    let own = std::process::id().wrapping_mul(PER_PROCESS) % u32::from(COUNT);
    loop {
        let call = u32::from(CALLS.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + u16::try_from((own + call) % u32::from(COUNT)).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
