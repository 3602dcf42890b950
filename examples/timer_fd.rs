//! A loop over `poll(2)` in which corewheel is one more file descriptor. A client sends a request
//! over UDP and repeats it, doubling the delay each time, until the answer arrives or a deadline
//! passes.
//!
//! The program also runs the lossy server, and checks the results:
//!
//! ```sh
//! cargo run --release --features fd --example timer_fd
//! ```

#[cfg(any(target_os = "linux", target_os = "android"))]
fn main() -> std::io::Result<()> {
    linux::main()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn main() {
    println!("skipped: only Linux has timerfd");
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::cell::RefCell;
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::rc::Rc;
    use std::time::{Duration, Instant};
    use std::{io, thread};

    use corewheel::{TimerHandle, local_timer};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;

    const FIRST_WAIT: Duration = Duration::from_millis(20);
    const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Outcome {
        Answered,
        TimedOut,
    }

    struct Request {
        socket: UdpSocket,
        server: SocketAddr,
        sent: u32,
        retry_timer: Option<TimerHandle>,
        outcome: Option<Outcome>,
    }

    fn send(request: &Rc<RefCell<Request>>) {
        let request_clone = Rc::clone(request);
        let mut request = request.borrow_mut();
        // A failed send counts as a lost packet.
        let _ = request.socket.send_to(b"time?", request.server);
        let wait = FIRST_WAIT * 2u32.pow(request.sent);
        request.sent += 1;
        request.retry_timer = Some(local_timer().add(wait, move || send(&request_clone)));
    }

    fn end(request: &RefCell<Request>, outcome: Outcome) {
        let mut request = request.borrow_mut();
        request.retry_timer.take().map(TimerHandle::cancel);
        request.outcome = Some(outcome);
    }

    /// Sends a request, and polls the socket and the timer's descriptor until the request ends.
    fn ask(server: SocketAddr) -> io::Result<(Outcome, u32)> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let answers = socket.try_clone()?;
        let request = Rc::new(RefCell::new(Request {
            socket,
            server,
            sent: 0,
            retry_timer: None,
            outcome: None,
        }));
        let request_at_deadline = Rc::clone(&request);
        let deadline = local_timer()
            .add(REQUEST_TIMEOUT, move || end(&request_at_deadline, Outcome::TimedOut));
        send(&request);

        let timer = local_timer().timer_fd()?;
        timer.arm();
        loop {
            let mut ready =
                [PollFd::new(&answers, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(error) if error != Errno::INTR => return Err(error.into()),
                _ => {}
            }
            let [answered, due] = ready.map(|polled| polled.revents().contains(PollFlags::IN));
            if answered {
                answers.recv(&mut [0; 16])?;
                deadline.cancel();
                end(&request, Outcome::Answered);
            }
            if due {
                timer.turn();
            }
            let Request { outcome, sent, .. } = *request.borrow();
            if let Some(outcome) = outcome {
                return Ok((outcome, sent));
            }
        }
    }

    fn run_lossy_server(socket: &UdpSocket) -> io::Result<()> {
        let mut packet = [0; 16];
        for request_number in 1.. {
            let (length, client) = socket.recv_from(&mut packet)?;
            if request_number % 3 == 0 {
                socket.send_to(&packet[..length], client)?;
            }
        }
        Ok(())
    }

    pub(super) fn main() -> io::Result<()> {
        let lossy_server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = lossy_server.local_addr()?;
        thread::spawn(move || run_lossy_server(&lossy_server));
        let start = Instant::now();
        let (outcome, sent) = ask(address)?;
        let duration = start.elapsed();
        println!("{outcome:?} after {sent} packets and {duration:?}");
        assert_eq!((outcome, sent), (Outcome::Answered, 3));
        assert!(duration >= FIRST_WAIT * 3, "a repetition was too early");

        let silent_server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let start = Instant::now();
        let (outcome, sent) = ask(silent_server.local_addr()?)?;
        let duration = start.elapsed();
        println!("{outcome:?} after {sent} packets and {duration:?}");
        assert_eq!(outcome, Outcome::TimedOut);
        assert!(duration >= REQUEST_TIMEOUT && local_timer().is_empty());
        Ok(())
    }
}
