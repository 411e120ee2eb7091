//! The reference: hyper in, hyper out. It forwards each frame at once and reads none.

use std::convert::Infallible;
use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::{Request, Response, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};

/// Prints its address on stdout and serves until it is killed.
pub(crate) async fn run(upstream: SocketAddr) -> ! {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<HttpConnector, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let client = client.clone();
        let service = hyper::service::service_fn(move |request| pass(client.clone(), upstream, request));
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

async fn pass(
    client: Client<HttpConnector, Incoming>,
    upstream: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<Incoming>, Infallible> {
    let (mut head, body) = request.into_parts();
    head.uri = format!("http://{upstream}{}", head.uri.path()).parse().unwrap();
    head.headers.remove(header::HOST);
    let (mut head, body) = client.request(Request::from_parts(head, body)).await.unwrap().into_parts();
    head.headers.remove(header::TRANSFER_ENCODING);
    Ok(Response::from_parts(head, body))
}
