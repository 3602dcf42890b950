//! What writing these tests has found in corewheel itself.

use corewheel::{AddErrorReason, local_timer};

use crate::{common::TICK, on_a_core, turn_after};

/// A reference whose thread has ended, used on a thread whose timer has the number now that the other one had: it added
/// to the stranger's timer, which is Agrona's bug (38) once more.
#[test]
fn a_stale_reference_adds_to_nobody() {
    for _ in 0..50 {
        let stale = on_a_core(|_| local_timer().shard_ref());
        on_a_core(|clock| {
            assert!(stale.try_add(TICK, || ()).is_err_and(|error| error.reason() == AddErrorReason::ShutDown));
            assert_eq!((local_timer().len(), turn_after(clock, 1).fired), (0, 0));
        });
    }
}
