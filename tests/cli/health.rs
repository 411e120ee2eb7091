//! `rolltap health`, and the notifications of `rolltap proxy` to a service manager.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rolltap_testing::limit;

use super::program::{Ended, Running, rolltap, run, unused_address};

/// Starts a proxy with these variables, and returns it with the URL of its admin plane.
fn proxy(dir: &Path, variables: &[(&str, &Path)]) -> (Running, String) {
    let upstream = unused_address();
    let args = ["proxy", "--upstream", &upstream, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut command = rolltap(dir, &args);
    command.envs(variables.iter().copied());
    let mut proxy = Running::spawn(&mut command);
    let _agents = proxy.next_url();
    let admin = proxy.next_url();
    (proxy, admin)
}

#[test]
fn a_running_proxy_is_healthy_by_url_by_address_and_by_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (_proxy, url) = proxy(dir.path(), &[]);
    let address = url.trim_start_matches("http://");
    std::fs::write(dir.path().join("proxy.toml"), format!("admin = \"{address}\"\n")).unwrap();
    for place in [&[url.as_str()][..], &["--admin", address], &["--config", "proxy.toml"]] {
        for ready in [&[][..], &["--ready"]] {
            let ended = run(dir.path(), &[&["health"], place, ready].concat());
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{place:?} {ready:?}");
        }
    }
}

#[test]
fn a_proxy_that_is_away_is_not_healthy_and_a_wrong_question_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let away = unused_address();
    let Ended { code, stderr, .. } = run(dir.path(), &["health", &away]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains(&format!("{away} is not healthy")), "{stderr}");
    for wrong in ["nowhere", "--config=absent.toml"] {
        assert_eq!(run(dir.path(), &["health", wrong]).code, Some(2), "{wrong}");
    }
}

#[test]
fn an_error_status_or_silence_is_not_healthy() {
    let dir = tempfile::tempdir().unwrap();
    let mut sim = Running::start(dir.path(), &["sim", "--listen", "127.0.0.1:0"]);
    // The simulator has no /readyz.
    let ended = run(dir.path(), &["health", "--ready", &sim.next_url()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("404"), "{ended:?}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let ended = run(dir.path(), &["health", &format!("http://{}", silent.local_addr().unwrap())]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
}

#[test]
fn the_service_manager_learns_that_the_proxy_is_ready_and_that_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(limit(10))).unwrap();
    let next = || {
        let mut datagram = [0; 100];
        let length = socket.recv(&mut datagram).unwrap();
        String::from_utf8(datagram[..length].to_vec()).unwrap()
    };
    let (proxy, _) = proxy(dir.path(), &[("NOTIFY_SOCKET", &path)]);
    assert_eq!(next().trim(), "READY=1");
    proxy.signal("TERM");
    assert_eq!(next().trim(), "STOPPING=1");
    assert_eq!(proxy.wait(limit(10)).0, Some(0));
}
