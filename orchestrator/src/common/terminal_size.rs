//! The size of a terminal.

use std::os::fd::AsFd;

/// Returns the width and the height of a terminal in characters. `None` if the stream is no terminal, or if the
/// terminal does not know its size.
pub fn of(stream: &impl AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    let (width, height) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (width > 0 && height > 0).then_some((width, height))
}
