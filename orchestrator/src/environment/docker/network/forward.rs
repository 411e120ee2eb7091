//! Forwards connections from isolated containers to their model. For each agent plane there is a port on the gateway of
//! their network, which forwards bytes unchanged.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The forwarding ports of a job, by target (`host:port`). They are closed when this value is dropped.
pub(crate) struct Doors {
    gateway: IpAddr,
    open: Mutex<HashMap<String, SocketAddr>>,
    stop: CancellationToken,
    _close: DropGuard,
}

impl Doors {
    pub(crate) fn at(gateway: IpAddr) -> Self {
        let stop = CancellationToken::new();
        Self { gateway, open: Mutex::default(), _close: stop.clone().drop_guard(), stop }
    }

    /// Returns the port that forwards to this target, and opens it if it does not exist.
    pub(crate) async fn to(&self, place: &str) -> io::Result<SocketAddr> {
        // The lock is held across the bind, so that one target never gets two ports.
        let mut open = self.open.lock().await;
        if let Some(address) = open.get(place) {
            return Ok(*address);
        }
        let listener = TcpListener::bind((self.gateway, 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(carry(listener, place.to_owned(), self.stop.clone()));
        open.insert(place.to_owned(), address);
        Ok(address)
    }
}

async fn carry(listener: TcpListener, place: String, stop: CancellationToken) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((mut inside, _)) = accepted else {
            // Most likely there are no free file descriptors. Others will be closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (place, stop) = (place.clone(), stop.clone());
        tokio::spawn(async move {
            let carrying = async {
                let mut outside = TcpStream::connect(&place).await?;
                // The events of a stream are small, and the agent waits for each one.
                inside.set_nodelay(true)?;
                outside.set_nodelay(true)?;
                tokio::io::copy_bidirectional(&mut inside, &mut outside).await
            };
            tokio::select! {
                carried = carrying => {
                    if let Err(error) = carried {
                        tracing::debug!(place, %error, "a container's connection to its model ended early");
                    }
                }
                () = stop.cancelled() => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_door_leads_to_its_place_and_closes_with_the_job() {
        let place = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let name = place.local_addr().unwrap().to_string();
        let doors = Doors::at(Ipv4Addr::LOCALHOST.into());
        let door = doors.to(&name).await.unwrap();
        assert_eq!(doors.to(&name).await.unwrap(), door);
        let mut inside = TcpStream::connect(door).await.unwrap();
        let (mut outside, _) = place.accept().await.unwrap();
        inside.write_all(b"asked").await.unwrap();
        inside.shutdown().await.unwrap();
        let mut asked = Vec::new();
        outside.read_to_end(&mut asked).await.unwrap();
        assert_eq!(asked, b"asked");
        outside.write_all(b"said").await.unwrap();
        let mut said = [0; 4];
        inside.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"said");
        drop(doors);
        assert!(matches!(inside.read(&mut said).await, Ok(0) | Err(_)));
        while TcpStream::connect(door).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
