//! One core: a runtime that drives the core's wheel, accepts connections and serves their requests.

use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{io, net};

use corewheel::Core;
use corewheel::future::sleep;
use corewheel::purgatory::PurgatoryCounts;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use crate::broker::Broker;

/// The longest time that an ending core waits until no operation watches its keys.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(crate) struct CoreReport {
    pub(crate) counts: PurgatoryCounts,
    pub(crate) foreign_requests: u64,
}

pub(crate) fn run(
    core: &Core,
    listener: net::TcpListener,
    broker: Broker,
) -> io::Result<CoreReport> {
    let broker = Rc::new(broker);
    corewheel_tokio::run(async {
        tokio::select! {
            () = core.stopped() => {}
            failed = accept(listener, &broker) => return failed,
        }
        let since = Instant::now();
        while broker.purgatory.counts().watches > 0 && since.elapsed() < SETTLE_TIMEOUT {
            sleep(POLL_INTERVAL).await;
        }
        Ok(CoreReport {
            counts: broker.purgatory.counts(),
            foreign_requests: broker.foreign_requests.get(),
        })
    })?
}

async fn accept(listener: net::TcpListener, broker: &Rc<Broker>) -> io::Result<CoreReport> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // Requests complete even if their connection has ended, but the answers are lost.
        spawn_local(serve(stream, Rc::clone(broker)));
    }
}

async fn serve(stream: TcpStream, broker: Rc<Broker>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let (mut lines, writer) = (BufReader::new(reader).lines(), Rc::new(writer));
    while let Some(line) = lines.next_line().await? {
        broker.serve(serde_json::from_str(&line)?, &writer)?;
    }
    Ok(())
}
