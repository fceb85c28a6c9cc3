from mainspring.cli.main import main

main()
