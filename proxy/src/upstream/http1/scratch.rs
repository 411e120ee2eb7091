//! The buffer of a thread for reads from sockets. Connections share it, so that an idle stream holds no buffer, and the
//! buffer stays in the processor's cache.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::common::tls::NetStream;

/// The maximum number of bytes of one read.
const SIZE: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into());
}

/// Reads once, and passes the bytes to `take`. They are empty at the end of the connection.
pub(super) fn poll_read<T>(
    stream: &mut NetStream,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> T,
) -> Poll<io::Result<T>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(scratch);
        ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(take(buffer.filled())))
    })
}
