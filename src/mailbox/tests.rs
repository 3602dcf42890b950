//! The owner's side of the mailbox, on one thread.

use super::*;

/// What the owner meets, one after the other, by the links of the nodes.
fn met(opened: &mut Opened, links: &[Link]) -> Vec<u32> {
    let next = || {
        let index = opened.next();
        (index != 0).then(|| opened.meet(links[index as usize].get()))?;
        Some(index)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn the_owner_takes_all_messages_newest_first() {
    let (mailbox, links) = (Mailbox::default(), [(); 4].map(|()| Link::default()));
    let mut opened = Opened::default();
    assert!(opened.take_more(&mailbox) && opened.is_empty());
    for index in 1..4 {
        assert_eq!(mailbox.push(index, &links[index as usize], Urgency::CanWait), Push::Queued(index));
    }
    assert_eq!((mailbox.depth(), mailbox.waiting().map(|kind| kind.first)), (3, [0, 3]));
    assert!(!opened.take_more(&mailbox), "once in a pass");
    opened.begin_pass();
    assert!(opened.take_more(&mailbox));
    assert_eq!((opened.count(), opened.left()[1]), (3, Messages { first: 3, second: 2, count: 3 }));
    assert_eq!(met(&mut opened, &links), [3, 2, 1]);
    assert_eq!((opened.is_empty(), opened.count(), mailbox.depth()), (true, 0, 0));
}

#[test]
fn messages_of_both_kinds_are_met_by_turns() {
    let (mailbox, links) = (Mailbox::default(), [(); 10].map(|()| Link::default()));
    let mut opened = Opened::default();
    let push = |index: u32, urgency| _ = mailbox.push(index, &links[index as usize], urgency);
    (1..5).for_each(|index| push(index, Urgency::CanWait));
    (5..7).for_each(|index| push(index, Urgency::Urgent));
    opened.take_more(&mailbox);
    assert_eq!(opened.next(), 6);
    opened.meet(links[6].get());
    assert_eq!(opened.next(), 4);
    // What comes later of a kind that is not used up is left for when it is; and of the other one it comes in the next pass.
    (7..9).for_each(|index| push(index, Urgency::CanWait));
    opened.meet(links[4].get());
    assert_eq!(met(&mut opened, &links), [5, 3, 2, 1]);
    push(9, Urgency::Urgent);
    opened.begin_pass();
    assert!(opened.take_more(&mailbox));
    assert_eq!(met(&mut opened, &links), [9, 8, 7]);
}

/// What is done once in a pass is done at that.
#[test]
fn the_first_look_of_a_pass_is_told_from_another_one() {
    let (mailbox, link) = (Mailbox::default(), Link::default());
    let mut opened = Opened::default();
    let _ = mailbox.push(1, &link, Urgency::CanWait);
    opened.take_more(&mailbox);
    opened.begin_pass();
    assert!(opened.take_more(&mailbox), "for urgent ones");
    opened.meet(link.get());
    assert!(!opened.take_more(&mailbox), "for the others, of which none was left");
    assert_eq!(opened.is_looked_for, [true; 2]);
}

#[test]
fn a_closed_mailbox_refuses() {
    let (mailbox, link) = (Mailbox::default(), Link::default());
    assert_eq!((mailbox.is_closed(), mailbox.close()), (false, [Messages::default(); 2]));
    for urgency in [Urgency::Urgent, Urgency::CanWait] {
        assert_eq!(mailbox.push(1, &link, urgency), Push::Closed);
        let mut opened = Opened::default();
        opened.take_more(&mailbox);
        assert!(opened.is_empty() && mailbox.is_closed() && !mailbox.keeps_awake(1));
        assert_eq!((mailbox.depth(), mailbox.waiting()), (0, [Messages::default(); 2]));
    }
}

#[test]
fn many_messages_or_an_urgent_one_keep_the_owner_awake() {
    let (mailbox, links) = (Mailbox::default(), [(); 3].map(|()| Link::default()));
    assert!(!mailbox.keeps_awake(2));
    assert_eq!(mailbox.push(1, &links[0], Urgency::CanWait), Push::Queued(1));
    assert!(!mailbox.keeps_awake(2) && mailbox.keeps_awake(1));
    assert_eq!(mailbox.push(2, &links[1], Urgency::Urgent), Push::Queued(1));
    assert_eq!(mailbox.push(3, &links[2], Urgency::CanWait), Push::Queued(2));
    assert!(mailbox.keeps_awake(9) && mailbox.is_urgent());
    assert_eq!(mailbox.depth(), 3);
    Opened::default().take_more(&mailbox);
    assert!(!mailbox.keeps_awake(1));
}

/// Not only the first: a wake-up may fail.
#[test]
fn a_count_that_goes_round_passes_a_multiple_of_the_debt_as_often() {
    let (stack, mut last) = (Stack::default(), 0);
    for pushed in 1..3 * MESSAGES_COUNTED {
        let Push::Queued(depth) = stack.push(1, &Link::default()) else { panic!("it is open") };
        assert_eq!(depth.is_multiple_of(DEBT_MAX), pushed.is_multiple_of(DEBT_MAX), "the {pushed}-th");
        assert!(stack.depth() == pushed.min(MANY) && stack.depth() >= last);
        last = stack.depth();
    }
}

/// What was too much to be counted is not nothing before its end.
#[test]
fn many_that_were_taken_are_many_until_the_last() {
    let head = pack(MESSAGES_COUNTED - 1, 2, 3);
    let links = [Link::default(), Link::default(), Link::default(), Link(AtomicU32::new(1))];
    let mut opened = Opened { left: [Messages::default(), Messages::of(head)], ..Opened::default() };
    let mut counts = vec![];
    while opened.next() != 0 {
        counts.push(opened.count());
        opened.meet(links[opened.next() as usize].get());
    }
    assert_eq!((counts, opened.count()), (vec![MANY; 3], 0));
}

#[test]
fn no_head_looks_closed() {
    for index in [GUEST | INDEX_MAX, 1] {
        let stack = Stack { head: AtomicU64::new(pack(MESSAGES_COUNTED - 1, 1, GUEST | INDEX_MAX)) };
        assert_eq!(stack.push(index, &Link::default()), Push::Queued(MANY));
    }
}
