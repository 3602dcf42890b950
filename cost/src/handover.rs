//! A channel for one value at a time, whose receiver blocks without spinning. The receivers of
//! other channels first spin, so the number of their instructions varies.

use std::sync::{Arc, Condvar, Mutex};

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    value: Option<T>,
    is_closed: bool,
}

pub(crate) struct Sender<T>(Arc<Shared<T>>);

pub(crate) struct Receiver<T>(Arc<Shared<T>>);

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = Mutex::new(State { value: None, is_closed: false });
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Shared<T> {
    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        change(&mut self.state.lock().expect("no holder panics"));
        self.changed.notify_one();
    }
}

impl<T> Sender<T> {
    /// Sends a value. The receiver must have received the previous one.
    pub(crate) fn send(&self, value: T) {
        self.0.change(|state| {
            assert!(state.value.replace(value).is_none(), "one value at a time");
        });
    }
}

/// Ends the receiver's iteration.
impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.change(|state| state.is_closed = true);
    }
}

impl<T> Iterator for Receiver<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let state = self.0.state.lock().expect("no holder panics");
        let is_unchanged = |state: &mut State<T>| state.value.is_none() && !state.is_closed;
        let state = self.0.changed.wait_while(state, is_unchanged);
        state.expect("no holder panics").value.take()
    }
}
