//! Tests TLS with servers on real sockets.

use http::uri::Authority;
use rolltap_testing::{TestAuthority, TestCertificate};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tempfile::NamedTempFile;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::common::tls::CertificateFiles;
use crate::upstream::tls::UpstreamTls;

/// Returns the TLS of a server. It requires client certificates of `clients`.
fn acceptor(certificate: &TestCertificate, clients: Option<&TestAuthority>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(issuer) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(issuer.der()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let (certificate, key) = certificate.der();
    let config = config.with_single_cert(vec![certificate], key).unwrap();
    Arc::new(config).into()
}

/// Returns TLS that trusts this authority, and the file that it names.
fn trusting(authority: &TestAuthority) -> (NamedTempFile, UpstreamTls) {
    let file = authority.file();
    let files = UpstreamTls { authorities: vec![file.path().to_owned()], identity: None };
    (file, files)
}

/// Returns connections to this listener, by TLS with these files.
fn connections(listener: &TcpListener, files: &UpstreamTls) -> Arc<Connections> {
    let server: Authority = listener.local_addr().unwrap().to_string().parse().unwrap();
    let tls = ServerTls::of(files.connector().unwrap(), &server).unwrap();
    Connections::to(server, Some(tls), None)
}

async fn accepted(listener: &TcpListener, acceptor: &TlsAcceptor) -> TlsStream<TcpStream> {
    acceptor.accept(listener.accept().await.unwrap().0).await.unwrap()
}

#[tokio::test]
async fn a_stream_over_tls_leaves_its_connection_for_another_request() {
    let (listener, issuer) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), TestAuthority::default());
    let acceptor = acceptor(&issuer.certificate("127.0.0.1"), None);
    let (_ca, files) = trusting(&issuer);
    let connections = connections(&listener, &files);
    let request = request("");
    let serving = async {
        let mut stream = accepted(&listener, &acceptor).await;
        read_request(&mut stream).await;
        stream.write_all(format!("{STREAM}3\r\nend\r\n").as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let (answer, mut stream) = tokio::join!(connections.request(&request), serving);
    let mut body = answer.unwrap().into_body();
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "end");
    body.needs_no_more();
    drop(body);
    assert_eq!(connections.idle_states(), [Readiness::Unfinished]);
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    eventually("the answer ends", async || connections.idle_states() == [Readiness::Ready]).await;
    let again = async {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        stream.flush().await.unwrap();
    };
    let (answer, ()) = tokio::join!(connections.request(&request), again);
    assert_eq!(answer.unwrap().into_body().whole(LIMITS).await.unwrap(), "ok");
    drop(stream);
    eventually("the connection closes", async || connections.idle_states().is_empty()).await;
}

/// More bytes than the buffers of the sockets and of TLS hold.
const MANY: usize = 16 << 20;

#[tokio::test]
async fn a_request_and_an_answer_of_many_records_arrive_whole() {
    let (listener, issuer) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), TestAuthority::default());
    let acceptor = acceptor(&issuer.certificate("127.0.0.1"), None);
    let (_ca, files) = trusting(&issuer);
    let connections = connections(&listener, &files);
    let sent: Vec<u8> = (0..MANY).map(|at| (at % 251) as u8).collect();
    let request = request(sent.clone());
    let serving = async {
        let mut stream = accepted(&listener, &acceptor).await;
        let mut received = vec![0; request.head.bytes.len() + request.body.len()];
        stream.read_exact(&mut received).await.unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {MANY}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&received[received.len() - MANY..]).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let limits = ReadLimits { bytes: MANY, ..LIMITS };
    let asking =
        async { connections.request(&request).await.unwrap().into_body().whole(limits).await.unwrap() };
    let (received, _stream) = tokio::join!(asking, serving);
    assert!(received == sent, "another answer came than was sent");
    assert_eq!(connections.idle_states(), [Readiness::Ready]);
}

/// Returns why a request to a server with this TLS fails.
async fn failure(acceptor: TlsAcceptor, files: &UpstreamTls) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connections = connections(&listener, files);
    let request = request("");
    // The handshake fails on either side.
    let serving = async {
        let stream = acceptor.accept(listener.accept().await.unwrap().0).await;
        if let Ok(mut stream) = stream {
            let _ = stream.read(&mut [0; 9]).await;
        }
    };
    let (answer, ()) = tokio::join!(connections.request(&request), serving);
    answer.unwrap_err().to_string()
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_is_named_with_the_reason() {
    let (issuer, other) = (TestAuthority::default(), TestAuthority::default());
    let (_ca, files) = trusting(&issuer);
    for (by, name, until, part) in [
        (&issuer, "127.0.0.1", 2001, "expired"),
        (&issuer, "other.example", 2100, "other.example"),
        (&other, "127.0.0.1", 2100, "--upstream-ca"),
    ] {
        let error = failure(acceptor(&by.certificate_until(name, until), None), &files).await;
        assert!(error.contains("the TLS handshake failed") && error.contains(part), "{error}");
    }
}

/// Returns TLS that trusts the authority of a file.
fn with_file(file: &NamedTempFile) -> UpstreamTls {
    UpstreamTls { authorities: vec![file.path().to_owned()], identity: None }
}

#[tokio::test]
async fn a_self_signed_certificate_works_if_it_is_given_and_no_authority() {
    let (_ca, stranger) = trusting(&TestAuthority::default());
    for (is_authority, remedy) in [(false, "--upstream-ca"), (true, "CA:FALSE")] {
        let certificate = TestCertificate::self_signed("127.0.0.1", is_authority);
        let error = failure(acceptor(&certificate, None), &stranger).await;
        assert!(error.contains(remedy), "{error}");
        let [given, _key] = certificate.files();
        if is_authority {
            let error = failure(acceptor(&certificate, None), &with_file(&given)).await;
            assert!(error.contains(remedy), "{error}");
            continue;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (connections, acceptor) =
            (connections(&listener, &with_file(&given)), acceptor(&certificate, None));
        let request = request("");
        let serving = async {
            let mut stream = accepted(&listener, &acceptor).await;
            read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            stream.flush().await.unwrap();
            stream
        };
        let (answer, _stream) = tokio::join!(connections.request(&request), serving);
        assert_eq!(answer.unwrap().status(), 204);
    }
}

#[tokio::test]
async fn a_client_certificate_is_presented_and_asked_for() {
    let issuer = TestAuthority::default();
    let (_ca, anonymous) = trusting(&issuer);
    let of_server = || acceptor(&issuer.certificate("127.0.0.1"), Some(&issuer));
    let error = failure(of_server(), &anonymous).await;
    assert!(error.contains("--upstream-client-cert"), "{error}");

    let [own, key] = issuer.certificate("rolltap.example").files();
    let identity = CertificateFiles { certificate: own.path().to_owned(), key: key.path().to_owned() };
    let named = UpstreamTls { identity: Some(identity), ..anonymous };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connections = connections(&listener, &named);
    let (request, acceptor) = (request(""), of_server());
    let serving = async {
        let mut stream = accepted(&listener, &acceptor).await;
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let (answer, _stream) = tokio::join!(connections.request(&request), serving);
    assert_eq!(answer.unwrap().status(), 204);
}

#[tokio::test]
async fn tls_on_one_side_alone_is_named() {
    let issuer = TestAuthority::default();
    let (_ca, files) = trusting(&issuer);
    let request = request("");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 999]).await;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    };
    let by_tls = connections(&listener, &files);
    let (answer, _stream) = tokio::join!(by_tls.request(&request), serving);
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("http://"), "{error}");

    let (listener, plain) = server().await;
    let acceptor = acceptor(&issuer.certificate("127.0.0.1"), None);
    let serving = async { drop(acceptor.accept(listener.accept().await.unwrap().0).await) };
    let (answer, ()) = tokio::join!(plain.request(&request), serving);
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("https://"), "{error}");
}
