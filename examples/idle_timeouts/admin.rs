//! The admin: a thread that owns no timer, holds the handles of all idle timers, and cancels some of them.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use corewheel::{Cancel, TimerHandle};

use crate::board::Board;
use crate::plan::{Plan, Role};

/// What the admin has done and been told.
#[derive(Debug, Default)]
pub(crate) struct AdminReport {
    /// Idle timers it has cancelled, by the answer it got.
    pub(crate) cancelled: u64,
    /// Those that were to be cancelled and had ended or were running.
    pub(crate) refused: u64,
    /// Those whose handle did not reach it in time.
    pub(crate) unknown: u64,
    /// Those that, asked again at the end, did not answer that they had ended long ago.
    pub(crate) revived: u64,
}

pub(crate) fn start(
    plan: &Arc<Plan>,
    board: &Arc<Board>,
    published: Receiver<(u32, TimerHandle)>,
    start: Instant,
) -> io::Result<JoinHandle<AdminReport>> {
    let admin = Admin {
        handles: vec![None; plan.connections as usize],
        plan: Arc::clone(plan),
        board: Arc::clone(board),
        published,
        start,
        report: AdminReport::default(),
    };
    thread::Builder::new().name(String::from("admin")).spawn(move || admin.run())
}

struct Admin {
    plan: Arc<Plan>,
    board: Arc<Board>,
    /// What the cores publish, and what has been seen of it.
    published: Receiver<(u32, TimerHandle)>,
    handles: Vec<Option<TimerHandle>>,
    start: Instant,
    report: AdminReport,
}

impl Admin {
    fn run(mut self) -> AdminReport {
        let mut cancelled = Vec::new();
        for (moment, id) in to_release(&self.plan) {
            self.listen_until(moment, |_| false);
            // A connection that took long to open is waited for.
            self.listen_until(self.plan.quiet, |admin| admin.handles[id as usize].is_some());
            cancelled.extend(self.release(id));
        }
        self.listen_until(self.plan.quiet, |_| false);
        let revived = cancelled.into_iter().filter(|handle| !has_ended(*handle));
        self.report.revived = revived.count() as u64;
        self.report
    }

    /// Cancels the idle timer of a connection; gives its handle where that is confirmed.
    fn release(&mut self, id: u32) -> Option<TimerHandle> {
        let Some(handle) = self.handles[id as usize] else {
            self.report.unknown += 1;
            return None;
        };
        if handle.cancel() != Cancel::Cancelled {
            self.report.refused += 1;
            return None;
        }
        self.report.cancelled += 1;
        self.board.release(id);
        Some(handle)
    }

    /// Notes the handles that come in until the moment, or until there is `enough`.
    fn listen_until(&mut self, moment: Duration, enough: impl Fn(&Self) -> bool) {
        while !enough(self) {
            let left = moment.saturating_sub(self.start.elapsed());
            match self.published.recv_timeout(left) {
                Ok((id, handle)) => self.note(id, handle),
                // The moment has come, or the server has ended, which it says for itself.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn note(&mut self, id: u32, handle: TimerHandle) {
        // A number that is nobody's is not worth a panic: the verdict will miss the connection.
        if let Some(known) = self.handles.get_mut(id as usize) {
            *known = Some(handle);
        }
    }
}

/// Whose idle timer to cancel, and when, in order.
fn to_release(plan: &Plan) -> Vec<(Duration, u32)> {
    let mut moments: Vec<_> = (0..plan.connections)
        .filter_map(|id| match plan.role(id) {
            Role::Released(moment) => Some((moment, id)),
            _ => None,
        })
        .collect();
    moments.sort_unstable();
    moments
}

/// A cancelled timer stays cancelled: no packet has brought it back, and no other timer answers to its handle.
fn has_ended(handle: TimerHandle) -> bool {
    !handle.is_pending() && handle.cancel() == Cancel::Ended
}
