//! The parser against commands that arrive in pieces, limits, and bytes that are no commands.

use super::{LINE_MAX, Malformed, Parser, WORD_MAX, WORDS_MAX, number};

type Commands = Vec<Vec<Vec<u8>>>;

/// All commands in `bytes`, of which `step` arrive at a time, and how it ended.
fn commands(bytes: &[u8], step: usize) -> (Commands, Result<(), Malformed>) {
    let (mut parser, mut found, mut start) = (Parser::new(), Vec::new(), 0);
    for end in (0..=bytes.len()).step_by(step).chain([bytes.len()]) {
        loop {
            match parser.read(&bytes[start..end]) {
                Ok(Some(length)) => {
                    assert!(length > 0 && start + length <= end);
                    found.push(
                        parser.words(&bytes[start..end]).iter().map(<[u8]>::to_vec).collect(),
                    );
                    parser.next();
                    start += length;
                }
                Ok(None) => break,
                Err(malformed) => return (found, Err(malformed)),
            }
        }
    }
    (found, Ok(()))
}

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

fn error(bytes: &[u8]) -> Option<Malformed> {
    commands(bytes, bytes.len().max(1)).1.err()
}

#[test]
fn commands_come_out_whole_however_they_arrive() {
    let bytes =
        b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\nPING\r\n*1\r\n$4\r\nPING\r\n  SET  a b \n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n";
    let mut expected = vec![words("GET key"), words("PING"), words("PING"), words("SET a b")];
    expected.extend([vec![], vec![], vec![], vec![vec![]]]);
    for step in 1..=bytes.len() {
        assert_eq!(commands(bytes, step), (expected.clone(), Ok(())), "{step} bytes at a time");
    }
}

#[test]
fn a_word_may_hold_any_bytes() {
    let bytes = b"*2\r\n$4\r\nECHO\r\n$6\r\n\r\n*1\0\xff\r\n";
    assert_eq!(commands(bytes, 1).0, [[b"ECHO".to_vec(), b"\r\n*1\0\xff".to_vec()]]);
}

#[test]
fn what_is_no_command_is_refused() {
    assert_eq!(error(b"*x\r\n"), Some(Malformed::WordCount));
    assert_eq!(error(b"*\r\n"), Some(Malformed::WordCount));
    assert_eq!(error(b"*99999999999999999999\r\n"), Some(Malformed::WordCount));
    assert_eq!(error(b"*1\r\nGET\r\n"), Some(Malformed::NoWordLength));
    assert_eq!(error(b"*1\r\n$-1\r\n"), Some(Malformed::WordLength));
    assert_eq!(error(b"*1\r\n$+3\r\nGET\r\n"), Some(Malformed::WordLength));
    assert_eq!(error(b"*1\r\n$3\r\nGETX\r\n"), Some(Malformed::NoWordEnd));
}

#[test]
fn everything_has_a_limit() {
    let most = format!("*{WORDS_MAX}\r\n");
    assert_eq!(error(most.as_bytes()), None);
    assert_eq!(error(format!("*{}\r\n", WORDS_MAX + 1).as_bytes()), Some(Malformed::WordCount));
    assert_eq!(error(format!("*1\r\n${WORD_MAX}\r\n").as_bytes()), None);
    assert_eq!(
        error(format!("*1\r\n${}\r\n", WORD_MAX + 1).as_bytes()),
        Some(Malformed::WordLength)
    );
    assert_eq!(error(&vec![b'a'; LINE_MAX]), None);
    assert_eq!(error(&vec![b'a'; LINE_MAX + 1]), Some(Malformed::LongLine));
    assert_eq!(
        error(&[b"*1".as_slice(), &vec![b'0'; LINE_MAX]].concat()),
        Some(Malformed::LongLine)
    );
    let word = [format!("${WORD_MAX}\r\n").as_bytes(), &vec![b'a'; WORD_MAX], b"\r\n"].concat();
    let bytes = [b"*4\r\n".as_slice(), &word, &word, &word, &word].concat();
    assert_eq!(error(&bytes), Some(Malformed::LongCommand));
}

#[test]
fn any_bytes_at_all_are_taken() {
    let mut random = fastrand::Rng::with_seed(1);
    let alphabet = b"*$-0123456789\r\n\r\n aZ\xff";
    for _ in 0..20_000 {
        let length = random.usize(0..60);
        let bytes: Vec<u8> =
            (0..length).map(|_| alphabet[random.usize(0..alphabet.len())]).collect();
        let whole = commands(&bytes, bytes.len().max(1));
        let in_pieces = commands(&bytes, random.usize(1..4));
        assert_eq!(whole, in_pieces, "{bytes:?}");
    }
}

#[test]
fn numbers_are_whole_and_in_range() {
    assert_eq!(number(b"0"), Some(0));
    assert_eq!(number(b"-12"), Some(-12));
    assert_eq!(number(b"9223372036854775807"), Some(i64::MAX));
    for wrong in ["", "-", "+1", " 1", "1 ", "1.5", "9223372036854775808", "--1"] {
        assert_eq!(number(wrong.as_bytes()), None, "{wrong:?}");
    }
}
