//! A TCP relay between two parts of a test, through which the network can fail.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// The fault of a network. Connections survive each of them but [`Cut::Refused`], as they survive lost packets, and what was
/// sent meanwhile arrives afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// Nothing arrives at either side.
    Silent,
    /// Nothing arrives at the server, and its answers to earlier requests do.
    Requests,
    /// Nothing arrives at the client, and its requests arrive.
    Answers,
    /// All connections break, and new ones break at once.
    Refused,
}

impl Cut {
    /// The same fault, if the client is the server and the server is the client.
    pub fn mirrored(self) -> Self {
        match self {
            Self::Requests => Self::Answers,
            Self::Answers => Self::Requests,
            both => both,
        }
    }
}

/// A relay on loopback to one address. Its threads end when it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    cut: Option<Cut>,
    is_over: bool,
    /// Both ends of each connection.
    ends: Vec<Weak<TcpStream>>,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// The time for which a connection to the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Relay {
    /// Starts a relay to this port of loopback, where a server may start later.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener, SocketAddr::from(([127, 0, 0, 1], port))));
        Self { address, shared }
    }

    /// The port at which the relay listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Lets the network fail.
    pub fn cut(&self, cut: Cut) {
        self.shared.set(Some(cut));
    }

    /// Lets the network work again.
    pub fn heal(&self) {
        self.shared.set(None);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.set(Some(Cut::Refused));
        // The connection wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, cut: Option<Cut>) {
        let mut state = self.lock();
        state.cut = cut;
        if cut == Some(Cut::Refused) {
            let ends: Vec<_> = state.ends.drain(..).filter_map(|end| end.upgrade()).collect();
            ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
        }
        self.changed.notify_all();
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener, server: SocketAddr) {
        loop {
            let Ok((client, _)) = listener.accept() else { continue };
            let state = self.lock();
            if state.is_over {
                return;
            }
            if state.cut != Some(Cut::Refused) {
                let shared = Arc::clone(self);
                thread::spawn(move || shared.connect(client, server));
            }
        }
    }

    /// Connects to the server, and relays in both directions until the connection ends.
    fn connect(self: &Arc<Self>, client: TcpStream, server: SocketAddr) {
        let direction = Direction::ToServer;
        if !self.passes(direction) {
            return;
        }
        let Ok(server) = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT) else { return };
        let (client, server) = (Arc::new(client), Arc::new(server));
        {
            let mut state = self.lock();
            if state.cut == Some(Cut::Refused) {
                return;
            }
            state.ends.retain(|end| end.strong_count() > 0);
            state.ends.extend([Arc::downgrade(&client), Arc::downgrade(&server)]);
        }
        for end in [&client, &server] {
            drop(end.set_nodelay(true));
        }
        let (shared, from, to) = (Arc::clone(self), Arc::clone(&server), Arc::clone(&client));
        let answers = thread::spawn(move || shared.copy(&from, &to, Direction::ToClient));
        self.copy(&client, &server, direction);
        drop(answers.join());
    }

    fn copy(&self, from: &TcpStream, to: &TcpStream, direction: Direction) {
        let (mut reader, mut writer) = (from, to);
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            if !self.passes(direction) || writer.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The end of a connection does not cross a network that fails either.
        if self.passes(direction) {
            drop(to.shutdown(Shutdown::Write));
        }
    }

    /// Waits until bytes pass in this direction. Returns false if the connection ends instead.
    fn passes(&self, direction: Direction) -> bool {
        let mut state = self.lock();
        loop {
            match (state.cut, direction) {
                (Some(Cut::Refused), _) => return false,
                (Some(Cut::Silent), _)
                | (Some(Cut::Requests), Direction::ToServer)
                | (Some(Cut::Answers), Direction::ToClient) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                (None | Some(Cut::Requests | Cut::Answers), _) => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each byte of each connection.
    fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut reader = stream.try_clone().unwrap();
                    std::io::copy(&mut reader, &mut stream)
                });
            }
        });
        port
    }

    fn client(relay: &Relay) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        client
    }

    fn read(client: &mut TcpStream) -> std::io::Result<u8> {
        let mut byte = [0];
        client.read_exact(&mut byte).map(|()| byte[0])
    }

    #[test]
    fn bytes_wait_while_a_direction_is_cut() {
        let relay = Relay::to(echo());
        let mut client = client(&relay);
        for cut in [Cut::Silent, Cut::Requests, Cut::Answers] {
            relay.cut(cut);
            client.write_all(b"a").unwrap();
            assert!(read(&mut client).is_err(), "{cut:?}");
            relay.heal();
            client.set_read_timeout(Some(crate::limit(10))).unwrap();
            assert_eq!(read(&mut client).unwrap(), b'a', "{cut:?}");
            client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        }
    }

    #[test]
    fn connections_break_while_they_are_refused() {
        let relay = Relay::to(echo());
        let mut old = client(&relay);
        old.write_all(b"a").unwrap();
        old.set_read_timeout(Some(crate::limit(10))).unwrap();
        assert_eq!(read(&mut old).unwrap(), b'a');
        relay.cut(Cut::Refused);
        assert!(read(&mut old).is_err());
        let mut refused = client(&relay);
        refused.set_read_timeout(Some(crate::limit(10))).unwrap();
        assert!(read(&mut refused).is_err());
        relay.heal();
        let mut new = client(&relay);
        new.set_read_timeout(Some(crate::limit(10))).unwrap();
        new.write_all(b"b").unwrap();
        assert_eq!(read(&mut new).unwrap(), b'b');
    }
}
