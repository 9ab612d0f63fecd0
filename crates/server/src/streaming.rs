//! A stream of events over HTTP/1 after its headers, written without buffers of its own. A server has thousands of them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use hyper::body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::wire::Wire;

/// A frame of the body between its size and the end of its chunk, which are empty without chunks.
type Chunk = Chain<Chain<Bytes, Bytes>, Bytes>;

/// A connection to which the rest of a response is written. The future ends with the body or with the connection, and closes it.
pub(crate) struct Streaming {
    wire: Wire,
    body: Body,
    /// Whether the body is sent in chunks, as HTTP/1.1 requires. Otherwise it ends with the connection.
    chunked: bool,
    /// What is being written. It is dropped as soon as it is, because its bytes count as unread until then.
    chunk: Option<Chunk>,
    ended: bool,
    /// Whether the client has sent something, which nobody answers: this response is the last one of the connection.
    spoken: bool,
}

impl Streaming {
    pub fn new(wire: Wire, body: Body, chunked: bool) -> Self {
        Self { wire, body, chunked, chunk: None, ended: false, spoken: false }
    }

    /// Returns an error once the client has closed the connection, which a stream without events would not notice otherwise.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.spoken {
            return Poll::Pending;
        }
        let mut room = [MaybeUninit::uninit(); 64];
        let mut buffer = ReadBuf::uninit(&mut room);
        match ready!(Pin::new(&mut self.wire).poll_read(cx, &mut buffer)) {
            Err(error) => Poll::Ready(error),
            Ok(()) if buffer.filled().is_empty() => {
                Poll::Ready(io::Error::new(io::ErrorKind::UnexpectedEof, "the client closed the connection"))
            }
            Ok(()) => {
                self.spoken = true;
                Poll::Pending
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(chunk) = &mut self.chunk {
            let mut slices = [IoSlice::new(&[]); 3];
            let filled = chunk.chunks_vectored(&mut slices);
            let written = ready!(Pin::new(&mut self.wire).poll_write_vectored(cx, &slices[..filled]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            chunk.advance(written);
            if !chunk.has_remaining() {
                self.chunk = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Future for Streaming {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(gone) = this.poll_gone(cx) {
            return Poll::Ready(Err(gone));
        }
        loop {
            ready!(this.poll_write(cx))?;
            ready!(Pin::new(&mut this.wire).poll_flush(cx))?;
            if this.ended {
                return Pin::new(&mut this.wire).poll_shutdown(cx);
            }
            this.chunk = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame.into_data().ok().and_then(|data| framed(data, this.chunked)),
                // Without its last chunk the client sees that the stream broke off.
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => {
                    this.ended = true;
                    this.chunked.then(|| chunk(Bytes::from_static(b"0\r\n"), Bytes::new()))
                }
            };
        }
    }
}

/// Returns these bytes as they are sent, or `None` if there are none: an empty chunk would be the last one.
fn framed(data: Bytes, chunked: bool) -> Option<Chunk> {
    if data.is_empty() {
        return None;
    }
    Some(match chunked {
        true => chunk(Bytes::from(format!("{:X}\r\n", data.len())), data),
        false => Bytes::new().chain(data).chain(Bytes::new()),
    })
}

fn chunk(size: Bytes, data: Bytes) -> Chunk {
    size.chain(data).chain(Bytes::from_static(b"\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(chunk: Option<Chunk>) -> Option<Vec<u8>> {
        chunk.map(|mut chunk| chunk.copy_to_bytes(chunk.remaining()).to_vec())
    }

    #[test]
    fn a_chunk_has_its_size_in_hexadecimal_digits_and_an_empty_one_is_left_out() {
        let data = Bytes::from_static(b"data: 123456789\n");
        assert_eq!(sent(framed(data.clone(), true)).as_deref(), Some(&b"10\r\ndata: 123456789\n\r\n"[..]));
        assert_eq!(sent(framed(data.clone(), false)).as_deref(), Some(&data[..]));
        assert_eq!(sent(framed(Bytes::new(), true)), None);
        assert_eq!(sent(Some(chunk(Bytes::from_static(b"0\r\n"), Bytes::new()))).as_deref(), Some(&b"0\r\n\r\n"[..]));
    }
}
