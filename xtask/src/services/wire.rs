//! The two commands that a new mongod needs, in MongoDB's wire protocol. The driver would take longer to compile than all other work of
//! `cargo xtask` before the first test.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const OP_MSG: u32 = 2013;
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// `{hello: 1, $db: "admin"}`
pub fn hello() -> Vec<u8> {
    let mut fields = int("hello", 1);
    fields.extend(text("$db", "admin"));
    document(&fields)
}

/// `{replSetInitiate: {_id, members: [{_id: 0, host}]}, $db: "admin"}`
pub fn initiate_replica_set(name: &str, host: &str) -> Vec<u8> {
    let mut member = int("_id", 0);
    member.extend(text("host", host));
    let members = nested(0x04, "members", &nested(0x03, "0", &member));
    let mut set = text("_id", name);
    set.extend(members);
    let mut fields = nested(0x03, "replSetInitiate", &set);
    fields.extend(text("$db", "admin"));
    document(&fields)
}

/// Sends a command. Returns the bytes of the response document, if it says `ok`.
pub fn ask(address: &str, command: &[u8]) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).map_err(said)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).map_err(said)?;
    let length = 16 + 4 + 1 + command.len();
    let mut message = Vec::with_capacity(length);
    for word in [length as u32, 1, 0, OP_MSG, 0] {
        message.extend(word.to_le_bytes());
    }
    message.push(0);
    message.extend(command);
    stream.write_all(&message).map_err(said)?;
    let mut head = [0; 21];
    stream.read_exact(&mut head).map_err(said)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let rest = length.checked_sub(head.len()).filter(|rest| *rest <= ANSWER_BYTES_MAX);
    let mut answer = vec![0; rest.ok_or("the answer is no message")?];
    stream.read_exact(&mut answer).map_err(said)?;
    match holds(&answer, b"\x01ok\0", &1f64.to_le_bytes()) {
        true => Ok(answer),
        false => Err(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Returns whether the response to [`hello`] comes from a primary.
pub fn is_primary(answer: &[u8]) -> bool {
    holds(answer, b"\x08isWritablePrimary\0", &[1])
}

/// Returns whether the document holds this field with this value, at any depth, which is enough for responses of known shape.
fn holds(document: &[u8], field: &[u8], value: &[u8]) -> bool {
    let wanted = [field, value].concat();
    document.windows(wanted.len()).any(|window| window == wanted)
}

fn document(fields: &[u8]) -> Vec<u8> {
    let length = (fields.len() + 5) as u32;
    [&length.to_le_bytes(), fields, &[0]].concat()
}

fn element(kind: u8, name: &str, value: &[u8]) -> Vec<u8> {
    [&[kind], name.as_bytes(), &[0], value].concat()
}

fn nested(kind: u8, name: &str, fields: &[u8]) -> Vec<u8> {
    element(kind, name, &document(fields))
}

fn int(name: &str, value: i32) -> Vec<u8> {
    element(0x10, name, &value.to_le_bytes())
}

fn text(name: &str, value: &str) -> Vec<u8> {
    let length = (value.len() + 1) as u32;
    element(0x02, name, &[&length.to_le_bytes(), value.as_bytes(), &[0]].concat())
}
