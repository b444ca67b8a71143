"""An S3 store for tests: moto, with an empty bucket. The argument is the port."""

import sys
import threading

import boto3
from moto.server import ThreadedMotoServer

port = int(sys.argv[1])
ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False).start()
client = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{port}",
    region_name="us-east-1",
    aws_access_key_id="key",
    aws_secret_access_key="secret",
)
client.create_bucket(Bucket="punctual")
print("the bucket is ready", flush=True)
threading.Event().wait()
