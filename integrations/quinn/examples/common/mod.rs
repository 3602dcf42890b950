//! An echo server and its clients.

use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, IdleTimeout, Runtime, ServerConfig,
    TransportConfig,
    rustls::{RootCertStore, pki_types::PrivatePkcs8KeyDer},
};

pub(crate) const SERVER_NAME: &str = "localhost";

/// Creates a server, and a client that trusts its certificate. Connections end after a silence of
/// `idle`.
pub(crate) fn endpoints(runtime: &Arc<dyn Runtime>, idle: Duration) -> (Endpoint, Endpoint) {
    let certified =
        rcgen::generate_simple_self_signed([SERVER_NAME.to_owned()]).expect("valid names");
    let certificate = certified.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(certified.key_pair.serialize_der());
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(IdleTimeout::try_from(idle).expect("a short timeout")));
    let transport = Arc::new(transport);
    let mut server =
        ServerConfig::with_single_cert(vec![certificate.clone()], key.into()).expect("a key");
    server.transport_config(Arc::clone(&transport));
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate).expect("a certificate");
    let mut client =
        ClientConfig::with_root_certificates(Arc::new(trusted)).expect("a valid certificate");
    client.transport_config(transport);

    let endpoint = |server| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        let runtime = Arc::clone(runtime);
        Endpoint::new(EndpointConfig::default(), server, socket, runtime).expect("an endpoint")
    };
    let (server, mut clients) = (endpoint(Some(server)), endpoint(None));
    clients.set_default_client_config(client);
    (server, clients)
}

/// Accepts `connections` connections and echoes their streams, until all connections have ended.
pub(crate) async fn serve(server: Endpoint, connections: usize) {
    let mut serving = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let connection = server.accept().await.expect("the endpoint is open");
        serving.spawn(async move {
            let connection = connection.await.expect("connected");
            while let Ok((mut answer, mut request)) = connection.accept_bi().await {
                let request = request.read_to_end(64).await.expect("a short request");
                answer.write_all(&request).await.expect("written");
                answer.finish().expect("open");
            }
        });
    }
    while let Some(served) = serving.join_next().await {
        served.expect("no panic");
    }
}

/// Sends a request on a new stream. Returns the answer.
pub(crate) async fn ask(connection: &Connection, request: &[u8]) -> Vec<u8> {
    let (mut sender, mut answer) = connection.open_bi().await.expect("a stream");
    sender.write_all(request).await.expect("written");
    sender.finish().expect("open");
    answer.read_to_end(64).await.expect("a short answer")
}
