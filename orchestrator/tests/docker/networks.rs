//! The reach of a container in each network mode.

use std::net::IpAddr;

use rolltap_orchestrator::environment::{Environment, EnvironmentKind, Host, JobLabel};
use rolltap_orchestrator::task::Task;
use rolltap_orchestrator::task::{AllowedHosts, NetworkPolicy};
use rolltap_proxy::api::BaseUrls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{output, prebuilt, run, start, with_host};

const NO_NETWORK: &str = "network_mode = \"no-network\"\n";
/// A server in a container. It answers every connection with the same text.
const SERVER: &str = "perl -MIO::Socket::INET -e '$s=IO::Socket::INET->new(LocalPort=>8000,Listen=>5,ReuseAddr=>1) or die; \
                      while($c=$s->accept){sysread($c,$b,999);print $c \"HTTP/1.1 200 OK\\r\\nContent-Length: \
                      16\\r\\n\\r\\nfrom a container\"; close $c}' >/dev/null 2>&1 & hostname -I";

/// Returns a command that sends one request for `path` and prints the answer. It prints nothing if the host is
/// unreachable.
fn ask(host: &str, port: u16, path: &str) -> String {
    format!(
        "timeout 3 bash -c 'exec 3<>/dev/tcp/{host}/{port} && \
         printf \"GET {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n\" >&3 && cat <&3' 2>/dev/null || true"
    )
}

/// Starts a model on this host that answers with a fixed text.
pub(crate) async fn model() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nfrom the model").await;
        }
    });
    (port, serving)
}

/// Requests the model's address as the environment sees it, and returns the output.
pub(crate) async fn asked_model(environment: &Environment, port: u16) -> String {
    let url = format!("http://127.0.0.1:{port}/t/KEY");
    let urls = BaseUrls { openai: format!("{url}/v1"), anthropic: url.clone(), gemini: url };
    let inside = environment.model_urls(&urls, &urls).await.unwrap();
    let place = inside.openai.strip_prefix("http://").unwrap().strip_suffix("/t/KEY/v1").unwrap();
    let (host, port) = place.rsplit_once(':').unwrap();
    output(environment, &ask(host, port.parse().unwrap(), "/t/KEY/v1")).await
}

pub(crate) async fn with_server(host: &Host) -> (Environment, String) {
    let server = start(host, &prebuilt("")).await;
    let address = serve(&server).await;
    (server, address)
}

/// Starts a server and waits until it answers inside its own container.
async fn serve(environment: &Environment) -> String {
    let address = output(environment, SERVER).await.trim().to_owned();
    while !reaches(environment, &address).await {}
    address
}

pub(crate) async fn reaches(environment: &Environment, address: &str) -> bool {
    output(environment, &ask(address, 8000, "/")).await.contains("from a container")
}

/// Connects another job. Its containers are as unreachable as any other network of the machine.
async fn elsewhere() -> Host {
    Host::connect(EnvironmentKind::Docker, &JobLabel::new("test-elsewhere")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run scripts/test"]
async fn without_network_a_container_reaches_its_model_and_nothing_else() {
    with_host(async |host, _| {
        let (_server, address) = with_server(host).await;
        let (port, serving) = model().await;
        let (one, other) =
            (start(host, &prebuilt(NO_NETWORK)).await, start(host, &prebuilt(NO_NETWORK)).await);
        assert!(asked_model(&one, port).await.ends_with("from the model"));
        assert!(!reaches(&one, &address).await);
        // The neighbour is unreachable even at its address on the shared network.
        let neighbour = serve(&other).await;
        assert!(!reaches(&one, &neighbour).await);
        assert!(!reaches(&one, &host.bind_address().to_string()).await);
        let looked_up = run(&one, "getent hosts example.com").await;
        assert_ne!(looked_up.exit_code, Some(0));
        serving.abort();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run scripts/test"]
async fn an_allowlist_lets_through_to_allowed_hosts_by_the_proxy_alone() {
    with_host(async |host, _| {
        let elsewhere = elsewhere().await;
        let (_server, address) = with_server(&elsewhere).await;
        let (_refused, not_allowed) = with_server(&elsewhere).await;
        let task = prebuilt(&format!("network_mode = \"allowlist\"\nallowed_hosts = [\"{address}\"]\n"));
        let (one, none) = (start(host, &task).await, start(host, &prebuilt(NO_NETWORK)).await);
        assert!(!reaches(&one, &address).await, "not without the proxy");
        let proxy = output(&one, "echo $http_proxy $HTTPS_PROXY").await;
        let (proxy, same) = proxy.split_once(' ').unwrap();
        assert_eq!(proxy, same);
        let (gateway, port) = proxy.strip_prefix("http://").unwrap().rsplit_once(':').unwrap();
        let through = |address: &str| ask(gateway, port.parse().unwrap(), &format!("http://{address}:8000/"));
        assert!(output(&one, &through(&address)).await.contains("from a container"));
        assert!(output(&one, &through(&not_allowed)).await.contains("403 Forbidden"));
        assert!(output(&none, &through(&address)).await.contains("may reach no host"));
        assert_eq!(output(&none, "echo $http_proxy").await, "");
        let (port, serving) = model().await;
        assert!(asked_model(&one, port).await.ends_with("from the model"));
        serving.abort();
        elsewhere.close().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Docker: run scripts/test"]
async fn phases_change_what_is_reached_and_commands_go_on() {
    with_host(async |host, _| {
        let elsewhere = elsewhere().await;
        let (_server, address) = with_server(&elsewhere).await;
        let task: Task = prebuilt("[agent]\nnetwork_mode = \"no-network\"\n");
        let environment = start(host, &task).await;
        // This is the default gateway in the hexadecimal form of the kernel's route table.
        let IpAddr::V4(gateway) = host.bind_address() else { panic!("an IPv4 network") };
        let open = format!("{:08X}", u32::from_le_bytes(gateway.octets()));
        let reached = async || {
            output(
                &environment,
                "while read -r _ to by _; do [ $to = 00000000 ] && echo $by; done </proc/net/route; true",
            )
            .await
        };
        assert_eq!(reached().await, open);
        output(&environment, "sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/pid").await;
        environment.set_network(&task.network.agent).await.unwrap();
        assert_ne!(reached().await, open);
        assert!(!reaches(&environment, &address).await);
        environment
            .set_network(&NetworkPolicy::Allowlist(AllowedHosts::parse([address.as_str()]).unwrap()))
            .await
            .unwrap();
        assert_ne!(output(&environment, "echo $http_proxy").await, "");
        environment.set_network(&task.network.verifier).await.unwrap();
        assert_eq!(reached().await, open);
        assert_eq!(output(&environment, "echo $http_proxy").await, "");
        output(&environment, "kill -0 $(cat /tmp/pid)").await;
        elsewhere.close().await.unwrap();
    })
    .await;
}
