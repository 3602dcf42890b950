//! What the threads show each other while the run goes on: how many clients there are for the live view, and whom the admin has
//! released. The verdict does not read any of it.
//!
//! All of it is relaxed: each value stands for itself and nothing else is read because of it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::tally::Tally;

#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) connected: Tally,
    pub(crate) left: Tally,
    released: Vec<AtomicBool>,
    pub(crate) cancelled: Tally,
}

impl Board {
    pub(crate) fn new(connections: u32) -> Self {
        Self {
            connected: Tally::default(),
            left: Tally::default(),
            released: (0..connections).map(|_| AtomicBool::new(false)).collect(),
            cancelled: Tally::default(),
        }
    }

    /// The admin has cancelled the idle timer of this connection: its client may fall silent.
    pub(crate) fn release(&self, id: u32) {
        self.released[id as usize].store(true, Relaxed);
        self.cancelled.one_more();
    }

    pub(crate) fn is_released(&self, id: u32) -> bool {
        self.released[id as usize].load(Relaxed)
    }
}
