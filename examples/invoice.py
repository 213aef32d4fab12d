# invoice.py
import asyncio

from sexton import App, Context, Retry

app = App()  # SEXTON_DATABASE_URL, or the embedded PostgreSQL


@app.task(retry=Retry.exponential(base="2s", max_attempts=3), timeout="10s")
async def send_invoice(ctx: Context, user_id: int) -> dict[str, int]:
    ctx.log(f"to user {user_id}, under key {ctx.idempotency_key}")
    return {"user_id": user_id, "attempt": ctx.attempt}


async def main() -> None:
    async with app:
        job = await send_invoice.submit(user_id=42, delay="1s", key="invoice-42")
        print(job.id, "submitted" if job.created else "already existed")
        print(await job.result(timeout="30s"))


if __name__ == "__main__":
    asyncio.run(main())
